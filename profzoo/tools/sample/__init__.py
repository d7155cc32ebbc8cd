"""NVML's counters of power, clocks, temperature, utilisation and memory, sampled beside an unprofiled run."""
