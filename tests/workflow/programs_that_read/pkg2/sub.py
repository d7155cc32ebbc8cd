"""A module of another package."""

MORE = 1
