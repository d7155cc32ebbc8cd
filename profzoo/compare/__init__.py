"""Which of two states of a cell is faster, by how much, where, and whether it is more than chance."""
