"""Defines a cell: a model of the zoo in one phase, with its settings and data."""
