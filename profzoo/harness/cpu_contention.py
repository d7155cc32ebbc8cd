"""Measures CPU contention: the share of a thread's time taken by other programs or by the hypervisor."""

import time
from contextlib import suppress
from pathlib import Path

# Two times of this thread in ns: running on a CPU, and ready to run but waiting for a CPU (Linux, sched-stats.rst).
SCHEDULED = Path("/proc/thread-self/schedstat")
# Sums over all CPUs, in ticks: user, nice, system, idle, iowait, irq, softirq and steal (proc_stat(5)).
COUNTED = Path("/proc/stat")
WORKING, STOLEN = (0, 1, 2, 5, 6), 7


class CpuContention:
    """Measures contention from its creation on, for the thread that creates it."""

    def __init__(self) -> None:
        self._ns, self._waited, self._ticks = time.perf_counter_ns(), _waited(), _ticks()

    def share(self, rested_ns: int = 0) -> float | None:
        """Share of the time since creation that was taken from the thread, 0 to 1; None if the system counts neither.

        rested_ns: time in ns that the thread rested on purpose, which does not count. Stolen time is known only as a
        sum over all CPUs: its share is stolen ticks divided by working and stolen ticks.
        """
        ns, waited, ticks = time.perf_counter_ns() - self._ns - rested_ns, _waited(), _ticks()
        parts = []
        if waited is not None and self._waited is not None and ns:
            parts.append((waited - self._waited) / ns)
        if ticks and self._ticks:
            gone = [later - earlier for earlier, later in zip(self._ticks, ticks, strict=True)]
            wanted = sum(gone[place] for place in (*WORKING, STOLEN))
            parts.append(gone[STOLEN] / wanted if wanted else 0.0)
        return min(sum(parts), 1.0) if parts else None


def _waited() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(SCHEDULED.read_text().split()[1])
    return None


def _ticks() -> list[int]:
    with suppress(OSError, ValueError):
        fields = COUNTED.read_text().partition("\n")[0].split()[1 : STOLEN + 2]
        return [int(field) for field in fields] if len(fields) > STOLEN else []
    return []
