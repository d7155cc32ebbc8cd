"""Part of a model."""

MORE = 1
