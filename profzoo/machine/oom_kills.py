"""Counts processes that the kernel killed for lack of memory."""

from pathlib import Path

COUNTS = Path("/proc/vmstat")


def count_oom_kills() -> int:
    """Number of out-of-memory kills on this machine since boot, in any memory group; 0 if unknown.

    The count covers all jobs, so a higher count says little about a job whose processes were not killed.
    """
    try:
        counts = dict(line.split() for line in COUNTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))
