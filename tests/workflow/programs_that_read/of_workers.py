"""Imported by workers alone."""

SCALE = 2
