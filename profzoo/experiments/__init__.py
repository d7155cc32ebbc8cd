"""Runs several variants of a cell in alternation: trials of settings, and the sides of a comparison."""
