"""The page that shows everything."""
