"""Runs the recorders of a script's window, and describes its process."""

import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from profzoo.harness import devices
from profzoo.harness.observers import recorders
from profzoo.harness.ranges import Ranges
from profzoo.harness.step.measure import read_compilations
from profzoo.range_names import WINDOW
from profzoo.script_harness.outside_settings import is_compiled
from profzoo.script_harness.task import BEGUN, ENDED, Task, claim_cell

if TYPE_CHECKING:
    from profzoo.cell.job_types import PaddedRows, ScriptArithmetic


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
        self.several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.represents = not self.rank and claim_cell(task.folder)
        self.peak_memory_bytes: int | None = None
        cell, files = task.cell, task.files
        timer: recorders.Recorder | None = None
        if not self.represents:
            # It opens no capture: that is for the process whose reports are read.
            self.recorder = recorders.Recorder(torch.device("cpu"), recorders.timer_of(device))
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
        # Samples, None where they are not known.
        self._timed_items: int | None = 0
        self._window_items: int | None = 0
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
        self._mark(BEGUN)
        self._ranges.open(WINDOW)

    def note_step(self, items: int | None) -> bool:
        """Note the end of a step with so many samples, None if unknown; returns whether the window has ended."""
        assert self._current
        self._current.step(items)
        if self._current is self.recorder:
            self._window_items = _add(self._window_items, items)
        else:
            self._timed_items = _add(self._timed_items, items)
        self._taken += 1
        if self._taken < self._left or self._lasts_too_short():
            return False
        self._stop()
        if self._rest:
            self._taken = 0
            self.begin()
            return False
        return True

    def close_if_full(self) -> bool:
        """Close the window of a script that ends in it; returns whether it has its steps, though not all its time."""
        if self._current is not self.recorder or self._taken < self._left:
            return False
        self.recorder.late = True
        self._stop()
        return True

    def _stop(self) -> None:
        assert self._current
        self._current.stop()
        self._mark(ENDED)
        if self._opens_capture:
            torch.cuda.profiler.stop()
        self._ranges.close()
        cuda = self._device.type == "cuda"
        self.peak_memory_bytes = torch.cuda.max_memory_allocated(self._device) if cuda else None

    def _mark(self, word: bytes) -> None:
        if self.represents and "marks" in self._task.files and self._current is self.recorder:
            self._task.files["marks"].write_bytes(word)

    def end_early(self) -> None:
        """End the window where it is, as no further step comes; without a traced step, the times are kept."""
        assert self._current
        traces = self._current is not self.timer and self.recorder.steps > 0
        try:
            with warnings.catch_warnings():
                # Of no step, there is no mean.
                warnings.simplefilter("ignore")
                self._current.stop()
        except Exception:
            traces = False
            raise
        finally:
            if not traces and self.timer:
                self.recorder, self.timer = self.timer, None
                self._window_items, self._taken = self._timed_items, self.recorder.steps
            cuda = self._device.type == "cuda"
            self.peak_memory_bytes = torch.cuda.max_memory_allocated(self._device) if cuda else None

    def _lasts_too_short(self) -> bool:
        """Whether the window has to go on, as it is to last for some time."""
        if not self._task.at_least_s or self._current is not self.recorder or self.several:
            return False
        self._current.clock.wait()
        return self._current.clock.now() - self._current.window_began_ns < self._task.at_least_s * 1e9

    def facts(self) -> dict[str, Any]:
        """Facts of the window, and under `baseline` those of the steps that were timed before it."""
        items = self._window_items
        found = {
            "steps": self.recorder.steps,
            # A profiler's schedule has steps that do not count.
            "items": round(items * self.recorder.steps / max(self._taken, 1)) if items else None,
            **recorders.describe_window(self.recorder),
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        if isinstance(self.timer, recorders.StepTimer):
            found["baseline"] = {
                "steps": self.timer.steps,
                "items": self._timed_items or None,
                "loss": None,
                **recorders.describe_window(self.timer),
                "peak_memory_bytes": self.timer.peak_memory_bytes,
                "peak_rss_bytes": self.timer.peak_rss_bytes,
            }
        return found


def _add(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _named_rank() -> int:
    """Rank by the environment that a launcher gives; 0 where it gives none."""
    return int(os.environ.get("RANK", "0"))


# Describes a script's process: device, versions, arithmetic and batch; and ends it.

# A process whose other threads keep it alive after its window is ended by then.
PATIENCE_S = 30.0


def describe_arithmetic(entered: Collection[str], networks: Iterable[nn.Module]) -> "ScriptArithmetic":
    """Return what arithmetic the script uses: autocast, TensorFloat-32, type of most weights, and compilation.

    entered: types of the autocast contexts that it has entered.
    """
    networks = list(networks)
    weights: dict[str, int] = {}
    for network in networks:
        for one in network.parameters():
            name = str(one.dtype).removeprefix("torch.")
            weights[name] = weights.get(name, 0) + one.numel()
    most = max(weights, key=lambda name: weights[name]) if weights else "float32"
    short = {"bfloat16": "bf16", "float16": "fp16"}
    lowered = [short[name] for name in (*sorted(entered), most) if name in short]
    tf32 = torch.backends.cuda.matmul.allow_tf32
    return {
        "precision": lowered[0] if lowered else "tf32" if tf32 else "fp32",
        "compile": any(map(is_compiled, networks)),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def measure_roof(device: torch.device, entered: Collection[str], networks: Iterable[nn.Module]) -> dict[str, Any]:
    """Return what a CPU can do, as the fact `roof`; empty on a GPU; entered, networks: as of `describe_arithmetic`."""
    if device.type != "cpu":
        return {}
    return {"roof": devices.measure_cpu_roof(describe_arithmetic(entered, networks)["precision"])}


def describe_work(padding: "Sequence[PaddedRows]", window: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of padding in early batches and of compilations; window: facts of the window."""
    made = read_compilations(window.get("window_began_ns", 0), window.get("window_wall_ns", 0))
    return {**({"padding": padding} if padding else {}), **({"compilations": made} if made else {})}


def end_process() -> None:
    """End the process after its window, as a script ends by itself.

    Raises:
        SystemExit: always, in the main thread.
    """
    watchdog = threading.Timer(PATIENCE_S, end_at_once)
    watchdog.daemon = True
    watchdog.start()
    if threading.current_thread() is not threading.main_thread():
        end_at_once()
    raise SystemExit(0)


def end_at_once() -> None:
    """End the process without running what is left of it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
