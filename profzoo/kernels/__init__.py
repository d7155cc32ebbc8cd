"""Names, classes and counters of kernels."""
