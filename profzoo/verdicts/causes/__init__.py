"""Verdicts of cells: what the causes are, in which order, and the table of them."""
