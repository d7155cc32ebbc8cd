"""What each step did: busy and idle time, sequences of kernels, ranks, streams and the program's own ranges."""
