"""A module beside a script."""

MORE = 1
