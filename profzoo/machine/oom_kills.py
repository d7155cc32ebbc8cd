"""Tells whether the kernel killed processes for lack of memory."""

from pathlib import Path

COUNTS = Path("/proc/vmstat")


def count_oom_kills() -> int:
    """How many it has killed so far on the whole machine, for lack of memory there or in one job's share; 0 if unknown.

    The count is of all jobs, so that a rise tells little about one of which no process was killed.
    """
    try:
        counts = dict(line.split() for line in COUNTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))
