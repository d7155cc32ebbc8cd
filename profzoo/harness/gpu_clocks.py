"""Reads the clock of the GPU's multiprocessors at both ends of the window, and what limits it, from NVML.

Only where NVIDIA's binding (nvidia-ml-py) and the driver's library are there. Nothing is read between two steps.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.cell.job_types import ClockReading


class GpuClocks:
    """The clocks of one GPU; call `read` before the first step of the window and after the last one.

    It never raises an error.
    """

    def __init__(self, uuid: str | None) -> None:
        """uuid: of the GPU, as nvidia-smi prints it; None for a CPU, of which nothing is read."""
        self._nvml: Any = None
        if uuid is not None:
            with suppress(Exception):
                self._open(uuid)

    def _open(self, uuid: str) -> None:
        # Imported here: a script's own environment may lack it.
        import pynvml

        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._nvml = pynvml

    def read(self) -> "list[ClockReading]":
        """Return the clock now, as a list of one reading; empty where it cannot be read."""
        with suppress(Exception):
            return [
                {
                    "sm_clock_hz": self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM) * 10**6,
                    # Drivers before 535 have it by no other name.
                    "throttle_reasons": self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle),
                }
            ]
        return []

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            with suppress(Exception):
                self._nvml.nvmlShutdown()
            self._nvml = None
