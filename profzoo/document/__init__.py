"""Generated pages of the documentation."""
