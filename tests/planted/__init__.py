"""Realistic steps with one planted cause of slowness each, and a mended twin of each: the truth that advice is held against."""
