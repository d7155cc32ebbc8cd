"""What threads of the host did: time on the CPU, system calls and idle time by call."""
