"""A file beside a package."""

MORE = 1
