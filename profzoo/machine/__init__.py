"""What this machine has: GPUs, programs, processes, folders."""
