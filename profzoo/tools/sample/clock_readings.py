"""Says of single readings of a GPU's clock how high it was and what limited it; they need no sampler.

Unprofiled processes read the clock at both ends of their window (profzoo/harness/gpu_clocks.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profzoo.tools.sample.gpu_state import IDLE
from profzoo.tools.sample.nvml import REASONS
from profzoo.tools.sample.tables import MOVED

if TYPE_CHECKING:
    from profzoo.cell.job_types import ClockReading, ProcessFacts, Sidecar

MHZ = 1e6


@dataclass(frozen=True)
class ClocksRead:
    """Readings of a cell's processes, without those of an idle GPU, whose clock is low because nothing runs.

    mean_hz, high_hz: of all readings, and the highest. limited_share: share of the readings with something that limits
    the clock. kept_hz: mean if only what was limited had been lower than the highest. reasons: the limits, in words.
    """

    mean_hz: float
    high_hz: float
    limited_share: float
    kept_hz: float
    reasons: str


def read_clocks(facts: "Sidecar") -> "tuple[ClockReading, ...]":
    """Return the readings of a sidecar, of all processes that timed the cell."""
    several: Sequence[ProcessFacts] = facts.get("processes") or [facts]
    return tuple(reading for process in several for reading in process.get("clocks", ()))


def summarise_clocks(readings: "Sequence[ClockReading]") -> ClocksRead | None:
    """Return what the readings say; None without any of a GPU at work.

    >>> fast, slow = {"sm_clock_hz": 2e9, "throttle_reasons": 0}, {"sm_clock_hz": 1.5e9, "throttle_reasons": 4}
    >>> found = summarise_clocks([fast, slow, {"sm_clock_hz": 3e8, "throttle_reasons": 1}])
    >>> found.kept_hz, found.high_hz, found.limited_share, found.reasons
    (1750000000.0, 2000000000.0, 0.5, 'power cap in 1 of 2 readings')
    """
    mine = [one for one in readings if not one["throttle_reasons"] & IDLE]
    if not mine:
        return None
    high = max(one["sm_clock_hz"] for one in mine)
    limited = [bool(one["throttle_reasons"] & sum(REASONS)) for one in mine]
    kept = [one["sm_clock_hz"] if slowed else high for one, slowed in zip(mine, limited, strict=True)]
    counts = {name: sum(bool(one["throttle_reasons"] & bit) for one in mine) for bit, name in REASONS.items()}
    return ClocksRead(
        mean_hz=sum(one["sm_clock_hz"] for one in mine) / len(mine),
        high_hz=high,
        limited_share=sum(limited) / len(mine),
        kept_hz=sum(kept) / len(mine),
        reasons="; ".join(f"{name} in {count} of {len(mine)} readings" for name, count in counts.items() if count),
    )


def describe_clock_difference(baseline: "Sidecar", candidate: "Sidecar") -> list[str]:
    """Return a sentence if the clocks of two sides differ, as a list; empty if they do not, or are not known.

    >>> describe_clock_difference({"clocks": [{"sm_clock_hz": 1980000000, "throttle_reasons": 0}]},
    ...     {"clocks": [{"sm_clock_hz": 1605000000, "throttle_reasons": 4}]})
    ['SM clock 1,980 MHz -> 1,605 MHz (power cap in 1 of 1 readings)']
    """
    one, other = (summarise_clocks(read_clocks(side)) for side in (baseline, candidate))
    if not one or not other or abs(one.mean_hz - other.mean_hz) <= MOVED * max(one.mean_hz, other.mean_hz):
        return []
    told = [f"{side.mean_hz / MHZ:,.0f} MHz{f' ({side.reasons})' if side.reasons else ''}" for side in (one, other)]
    return [f"SM clock {' -> '.join(told)}"]
