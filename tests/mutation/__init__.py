"""Mutation testing: plants mistakes in the code that derives numbers and counts those that a test notices."""
