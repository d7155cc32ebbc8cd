"""Part of a model that is imported by a name in a file."""

MORE = 1
