"""Measures CPU contention: the share of a thread's time taken by other programs or by the hypervisor."""

import time
from contextlib import suppress
from pathlib import Path

# Of this thread: ns on a CPU, and ns that it could have run and waited for one (Linux, sched-stats.rst).
SCHEDULED = Path("/proc/thread-self/schedstat")
# Of all CPUs: ticks of user, nice, system, idle, iowait, irq, softirq and steal (proc_stat(5)).
COUNTED = Path("/proc/stat")
WORKING, STOLEN = (0, 1, 2, 5, 6), 7


class CpuContention:
    """Measures contention from its creation on, for the thread that creates it."""

    def __init__(self) -> None:
        self._ns, self._waited, self._ticks = time.perf_counter_ns(), _waited(), _ticks()

    def share(self, rested_ns: int = 0) -> float | None:
        """The part of the time since then, without what of it was rested; None where the system does not tell.

        A hypervisor tells of all CPUs alone, so that what it takes is held against what all wanted of them.
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
