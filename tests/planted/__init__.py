"""Realistic steps with one planted cause of slowness each, and a mended twin: what advice is held against."""
