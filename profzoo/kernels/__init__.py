"""What a kernel is: its short name, its class, and its counters."""
