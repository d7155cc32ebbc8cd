"""Runs a model: data, named ranges, the step loop and its recorders."""
