"""What holds a cell back, by rules with a metric, a threshold, and a next step."""
