"""Measures memory in one step of a script behind the window: the most that each range holds, by purpose."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from profzoo.harness import peak_memory, safe_inspection
from profzoo.harness.ranges import Ranges
from profzoo.script_harness.networks import Networks


class StepMemory:
    """Watches the step that begins now; batches are not known, so that their blocks count as other ones."""

    def __init__(self, networks: Networks, optimizers: Iterable[torch.optim.Optimizer], ranges: Ranges) -> None:
        self._began, self._ranges, self._device = time.perf_counter_ns(), ranges, networks.device
        self._watch = peak_memory.MemoryWatch(networks.found, list(optimizers), None, self._device)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        ranges.watch(torch_ranges=True, torch_modules=False)
        ranges.closed = self._watch.note_closed
        self._watch.profiler.start()

    def end(self, path: Path) -> dict[str, Any]:
        """End the step and write its rows; returns what it took, and the allocator's own peak (None on a CPU)."""
        self._watch.profiler.stop()
        self._ranges.closed = None
        peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
        none: list[dict[str, Any]] = []
        rows = safe_inspection.attempt("memory was not taken stock of", self._watch.rows, none)
        peak_memory.write_rows(rows, path)
        return {"wall_ns": time.perf_counter_ns() - self._began, "allocator_peak_bytes": peak}
