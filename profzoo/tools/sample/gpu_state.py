"""Reads what may slow a GPU down before anything is measured: clocks, power limit, and programs that use it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from profzoo.tools.sample import nvml

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
