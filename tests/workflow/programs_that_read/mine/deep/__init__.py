"""Part of a model."""
