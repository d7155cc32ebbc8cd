"""When a device is done with what it was given: by CUDA events, or by the host's clock where that is the device."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """The clocks of a host and of the device that it gives work to, which may lag behind."""

    def now(self) -> int:
        """The host's time in ns."""

    def mark(self) -> Any:
        """Mark the moment at which the device will be done with all that it was given so far; does not wait for it."""

    def between(self, first: Any, last: Any) -> float:
        """Time in ns from one mark to a later one, by the device's clock; both have come to pass."""

    def wait(self) -> None:
        """Return once the device is done."""


class HostClock:
    """Of a device that is the host itself."""

    def now(self) -> int:
        """The host's time in ns."""
        return time.perf_counter_ns()

    def mark(self) -> int:
        """Now."""
        return self.now()

    def between(self, first: int, last: int) -> float:
        """Time in ns from one mark to a later one."""
        return float(last - first)

    def wait(self) -> None:
        """Return at once."""


class CudaClock(HostClock):
    """Of a GPU: marks are events on its current stream."""

    def __init__(self, device: torch.device) -> None:
        """device: a GPU."""
        self._device = device

    def mark(self) -> Any:
        """An event behind all work of the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, first: Any, last: Any) -> float:
        """Time in ns from one event to a later one; the GPU counts in half microseconds."""
        return first.elapsed_time(last) * 1e6

    def wait(self) -> None:
        """Wait for all streams of the GPU."""
        torch.cuda.synchronize(self._device)


def timer_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
