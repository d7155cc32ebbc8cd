"""Measures a program that knows nothing of profzoo, from inside its process: steps, ranges, window and settings."""
