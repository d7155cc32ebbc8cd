"""Reads what may slow a GPU down before anything is measured: clocks, power limit, and programs that use it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

from profzoo.tools.sample import nvml
from profzoo.tools.sample.nvml import REASONS as NVML_REASONS
from profzoo.tools.sample.tables import MOVED

if TYPE_CHECKING:
    from profzoo.cell.job_types import ClockReading, ProcessFacts, Sidecar

IDLE = pynvml.nvmlClocksEventReasonGpuIdle
# Why clocks are low, besides that nothing runs. Source: NVIDIA, "NVML API Reference", NvmlClocksEventReasons.
REASONS = {
    **nvml.REASONS,
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "application clocks",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display clocks",
}


@dataclass(frozen=True)
class GpuState:
    """State of one GPU; a value that the GPU does not report is None.

    Attributes:
        sm_clock_mhz: current clock rate of the multiprocessors; highest_mhz: the highest that it can have.
        idle: whether clocks are low because nothing runs.
        reasons: other reasons for which clocks are low.
        limit_mw: the power that the GPU may use now; default_mw: the limit that it starts with.
        processes: what uses the GPU, each with its number and memory.
    """

    sm_clock_mhz: int | None
    highest_mhz: int | None
    idle: bool
    reasons: tuple[str, ...]
    limit_mw: int | None
    default_mw: int | None
    processes: tuple[str, ...]


def read_state(library: nvml.Nvml, uuid: str) -> GpuState:
    """Read the state of a GPU; nothing is set.

    Raises:
        NvmlError: NVML knows no GPU of this UUID.
    """
    handle = library.call(pynvml.nvmlDeviceGetHandleByUUID, uuid)

    def told(function: Callable[..., Any], *given: Any) -> Any:
        with suppress(nvml.NvmlError):
            return library.call(function, handle, *given)
        return None

    reasons = told(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
    running = told(pynvml.nvmlDeviceGetComputeRunningProcesses) or []
    return GpuState(
        sm_clock_mhz=told(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
        highest_mhz=told(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
        idle=bool(reasons & IDLE),
        reasons=tuple(words for bit, words in REASONS.items() if reasons & bit),
        limit_mw=told(pynvml.nvmlDeviceGetEnforcedPowerLimit),
        default_mw=told(pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        processes=tuple(_describe(library, process) for process in running),
    )


def _describe(library: nvml.Nvml, process: Any) -> str:
    """Name, number and memory of a process; one of another container has no name here."""
    name = "unknown program"
    with suppress(nvml.NvmlError):
        name = str(library.call(pynvml.nvmlSystemGetProcessName, process.pid)).rpartition("/")[2]
    used = f", {process.usedGpuMemory / 1e9:.1f} GB" if process.usedGpuMemory else ""
    return f"{name} (process {process.pid}{used})"


# Says of single readings of a GPU's clock how high it was and what limited it; they need no sampler.
#
# Unprofiled processes read the clock at both ends of their window (profzoo/harness/observers/recorders.py).

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
    limited = [bool(one["throttle_reasons"] & sum(NVML_REASONS)) for one in mine]
    kept = [one["sm_clock_hz"] if slowed else high for one, slowed in zip(mine, limited, strict=True)]
    counts = {name: sum(bool(one["throttle_reasons"] & bit) for one in mine) for bit, name in NVML_REASONS.items()}
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
