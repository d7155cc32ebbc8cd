"""Measures when a device has finished its work: with CUDA events, or with the host's clock for a CPU."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Host clock and device clock; the device may lag behind the host."""

    def now(self) -> int:
        """Host time in ns."""

    def mark(self) -> Any:
        """Mark when the device will have finished all work submitted so far; does not wait."""

    def between(self, first: Any, last: Any) -> float:
        """Device time in ns between two marks; both must have completed."""

    def wait(self) -> None:
        """Wait until the device has finished."""


class HostClock:
    """Clock for the CPU, where host and device are the same."""

    def now(self) -> int:
        """Host time in ns."""
        return time.perf_counter_ns()

    def mark(self) -> int:
        """Current host time in ns."""
        return self.now()

    def between(self, first: int, last: int) -> float:
        """Time in ns between two marks."""
        return float(last - first)

    def wait(self) -> None:
        """Return at once."""


class CudaClock(HostClock):
    """Clock for a GPU: marks are CUDA events on its current stream."""

    def __init__(self, device: torch.device) -> None:
        """device: a GPU."""
        self._device = device

    def mark(self) -> Any:
        """Record an event behind all work of the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, first: Any, last: Any) -> float:
        """Time in ns between two events, with the GPU's resolution of half a microsecond."""
        return first.elapsed_time(last) * 1e6

    def wait(self) -> None:
        """Wait for all streams of the GPU."""
        torch.cuda.synchronize(self._device)


def timer_of(device: torch.device) -> Clock:
    """Make the clock of a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()
