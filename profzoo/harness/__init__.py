"""What runs a model: settings, data, ranges, the step loop and its recorders."""
