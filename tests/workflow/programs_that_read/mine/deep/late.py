"""Part of a model that a function imports."""

MORE = 1
