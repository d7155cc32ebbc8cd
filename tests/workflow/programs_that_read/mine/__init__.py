"""A package of a user's own."""
