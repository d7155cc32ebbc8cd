"""Tables across tools and cells, from exported CSV."""
