"""Checks the user's configuration, and finds the cells and targets that it selects."""
