"""Query and control this machine: GPUs, programs, processes, folders and locks."""
