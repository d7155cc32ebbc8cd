"""What a cell is: a model of the zoo, its settings, its data."""
