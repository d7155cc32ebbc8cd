"""Runs the recorders of a script's window: steps that are timed first, if any, then the window itself."""

import os
from typing import Any

import torch
import torch.distributed as dist

from profzoo.harness import recorders, timers
from profzoo.harness.ranges import Ranges
from profzoo.range_names import WINDOW
from profzoo.script_harness.task import Task, claim_cell


class Stages:
    """The window of one process, and the steps timed before it where torch.profiler follows.

    Attributes:
        represents: whether this process stands for the cell, and writes its files. rank: its number among the
            processes. recorder: what observes the window.
    """

    def __init__(self, task: Task, device: torch.device, ranges: Ranges) -> None:
        self._task, self._device, self._ranges = task, device, ranges
        self.rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else _named_rank()
        # Processes that wait for each other have to leave at the same step.
        self._several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.represents = not self.rank and claim_cell(task.folder)
        self.peak_memory_bytes: int | None = None
        cell, files = task.cell, task.files
        timer: recorders.Recorder | None = None
        if not self.represents:
            # It opens no capture: that is for the process whose reports are read.
            self.recorder = recorders.Recorder(torch.device("cpu"), timers.timer_of(device))
        elif "trace" in files:
            self.recorder = recorders.TorchProfiler(
                device, cell["profiler"], cell["window"], files["operators"], files["trace"], files.get("more")
            )
            timer = recorders.StepTimer(device, files["steps"]) if task.times_first else None
        elif "steps" in files:
            self.recorder = recorders.StepTimer(device, files["steps"])
        else:
            self.recorder = recorders.Recorder(device)
        # A script that leaves the GPU alone is captured all the same: nsys waits for that where there is one.
        alone = device.type != "cuda" and torch.cuda.is_available() and "trace" not in files
        self._opens_capture = self.represents and alone
        self.timer = timer
        timed = cell["profiler"]["baseline"] if task.times_first else 0
        self._rest = [(timer, timed)] if timer else []
        self._rest.append((self.recorder, cell["steps"] - cell["warmup"] - (timed if timer else 0)))
        self._timed_items = self._window_items = 0
        self._taken = 0

    def begin(self) -> None:
        """Start the first recorder and open the window's range."""
        self._current, self._left = self._rest.pop(0)
        traces, modules = self._task.kinds_of_ranges
        profiles = isinstance(self._current, recorders.TorchProfiler)
        self._ranges.watch(traces and profiles, modules and profiles)
        assert self._current
        if self._opens_capture:
            torch.cuda.profiler.start()
        self._current.start()
        self._ranges.open(WINDOW)

    def note_step(self, items: int) -> bool:
        """Note the end of a step with so many samples; returns whether the window has ended."""
        assert self._current
        self._current.step(items)
        if self._current is self.recorder:
            self._window_items += items
        else:
            self._timed_items += items
        self._taken += 1
        if self._taken < self._left or self._lasts_too_short():
            return False
        self._current.stop()
        if self._opens_capture:
            torch.cuda.profiler.stop()
        self._ranges.close()
        if self._rest:
            self._taken = 0
            self.begin()
            return False
        cuda = self._device.type == "cuda"
        self.peak_memory_bytes = torch.cuda.max_memory_allocated(self._device) if cuda else None
        return True

    def _lasts_too_short(self) -> bool:
        """Whether the window has to go on, as it is to last for some time."""
        if not self._task.at_least_s or self._current is not self.recorder or self._several:
            return False
        self._current.clock.wait()
        return self._current.clock.now() - self._current.window_began_ns < self._task.at_least_s * 1e9

    def facts(self) -> dict[str, Any]:
        """Facts of the window, and under `baseline` those of the steps that were timed before it."""
        found = {
            "steps": self.recorder.steps,
            # A profiler's schedule has steps that do not count.
            "items": round(self._window_items * self.recorder.steps / max(self._taken, 1)),
            **recorders.describe_window(self.recorder),
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        if isinstance(self.timer, recorders.StepTimer):
            found["baseline"] = {
                "steps": self.timer.steps,
                "items": self._timed_items,
                "loss": None,
                **recorders.describe_window(self.timer),
                "peak_memory_bytes": self.timer.peak_memory_bytes,
                "peak_rss_bytes": self.timer.peak_rss_bytes,
            }
        return found


def _named_rank() -> int:
    """Rank by the environment that a launcher gives; 0 where it gives none."""
    return int(os.environ.get("RANK", "0"))
