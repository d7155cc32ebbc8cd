"""Makes the tables of a cell and across all cells from exported CSV."""
