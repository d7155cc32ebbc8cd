"""Recorders observe the window: markers alone for ncu and nsys, a clock, or torch.profiler."""

import csv
import resource
import statistics
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from profzoo.harness import (
    allocator_history,
    allocator_state,
    cuda_graph_trace,
    devices,
    gpu_clocks,
    operator_table,
    source_lines,
    timers,
)
from profzoo.harness.cpu_contention import CpuContention
from profzoo.harness.cuda_graph import CapturedStep
from profzoo.harness.distributed import meet_nobody
from profzoo.harness.token_times import TokenTimes
from profzoo.machine import time_slicing
from profzoo.statistics.steady_state import drop_warmup

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts, ClockReading

STEP_COLUMNS = ("step", "wall_ns", "gpu_ns", "items", "peak_memory_bytes")
# Duration of a shift in ns: longer than waking up takes, and shorter than the machine's state usually lasts.
SHIFT_NS = 30_000_000

# Attributes of a recorder that become facts; of the second kind, only those that are known.
WINDOW, STATE = ("step_ns", "window_began_ns", "window_wall_ns", "cpu_taken_share", "shifts"), ("allocator", "clocks")


class Recorder:
    """Marks the window for ncu and nsys (cudaProfilerStart and -Stop) and measures its time.

    Call `start` before the window, `step` after each step of it, and `stop` at its end.
    """

    torch_ranges, torch_modules = False, False

    def __init__(self, device: torch.device, clock: timers.Clock | None = None) -> None:
        """device: what the model runs on; clock: the device's, unless given."""
        self.device, self.clock = device, clock or timers.timer_of(device)
        self.steps, self.window_wall_ns = 0, 0
        # When the window opened, by the host's monotonic clock, which other processes of it share.
        self.window_began_ns = 0
        # How long the window is to last at the least, in seconds.
        self.least_s = 0.0
        self._first: Any = None
        self._last: Any = None

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Open the window; meet: waits for other processes, whose profilers may take tens of ms longer to start."""
        self.clock.wait()
        if self.device.type == "cuda":
            torch.cuda.profiler.start()
        meet()
        self.window_began_ns = self.clock.now()

    def step(self, items: int) -> None:
        """Note that the host has finished a step of this many samples."""
        self.steps += 1
        if self.steps == 1:
            self._first = self.clock.mark()

    @property
    def step_ns(self) -> float:
        """Mean time per step in ns, without the window's first step if there are more: profilers start up in it.

        The interval lasts from the moment when the device finished the first step to the moment when it finished the
        last. The host may run several steps ahead: its clock would count the device's backlog of the first step twice.
        """
        if self.steps < 2:
            return float(self.window_wall_ns)
        return self.clock.between(self._first, self._last) / (self.steps - 1)

    def stop(self) -> None:
        """Close the window once the device has finished."""
        self._last = self.clock.mark()
        self.clock.wait()
        self.window_wall_ns = self.clock.now() - self.window_began_ns
        if self.device.type == "cuda":
            torch.cuda.profiler.stop()

    def explain(self, step: Callable[[Any], Any]) -> None:
        """After the measurement, add facts to the recording that need the step to run again."""


class StepTimer(Recorder):
    """Writes one row per step to a CSV, without a synchronisation between steps.

    wall_ns: host time from the end of the previous step to the end of this step; the last row includes the wait for
    the device. gpu_ns: the same interval on the device, by CUDA events; empty on a CPU. peak_memory_bytes: peak of the
    bytes that tensors held on the GPU since the process began; empty on a CPU. token_*_ns: times of the tokens that
    the step generated, if it did.

    On a CPU, processes may take turns. A turn (shift) ends after the step that reaches SHIFT_NS. The wait between two
    shifts is part of no step.
    """

    def __init__(self, device: torch.device, path: Path) -> None:
        """path: the CSV to write."""
        super().__init__(device)
        # No turns on a GPU: all waiting processes would hold GPU memory at the same time.
        self._worker = time_slicing.find_worker() if device.type == "cpu" else None
        # Indices of rows that mark the start of a shift, not the end of a step.
        self._begun = [0]
        # Share of the window's time in which other programs used this process's CPU.
        self.cpu_taken_share: float | None = None
        # Peak from the start of the process to the end of the window.
        self.peak_memory_bytes: int | None = None
        self.peak_rss_bytes = 0
        self._path = path
        self._rows: list[tuple[int, int, int | None]] = []
        self._marks: list[Any] = []
        self._settled_ns = 0.0
        # What the allocator did in the window, and clocks at both of its ends; None where nothing is known.
        self.allocator: AllocatorFacts | None = None
        self.clocks: list[ClockReading] | None = None
        self._gpu_clocks = gpu_clocks.GpuClocks(devices.read_uuid(device))

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Open the window; meet: waits for other processes."""
        # Before the wait, while the GPU still works.
        self._clocks_before = self._gpu_clocks.read()
        self.clock.wait()
        self._memory_before = allocator_state.read_statistics(self.device)
        self._taken = CpuContention()
        self._tokens = TokenTimes(self.clock)
        self._tokens.start()
        meet()
        self._note(0)
        self.window_began_ns = self._rows[0][0]

    def step(self, items: int) -> None:
        """Note the end of a step."""
        self.steps += 1
        self._tokens.end_step()
        self._note(items)
        if self._worker and self._rows[-1][0] - self._rows[self._begun[-1]][0] >= SHIFT_NS:
            self._worker.rest()
            self._begun.append(len(self._rows))
            self._note(0)

    @property
    def shifts(self) -> int:
        """Number of shifts in which the process ran."""
        return len(self._begun)

    @property
    def step_ns(self) -> float:
        """Mean time per step in the steady state in ns, as in the tables; device time on a GPU, else host time."""
        return self._settled_ns

    def stop(self) -> None:
        """Close the window and write the rows."""
        # Before the wait as well. If the GPU is done sooner than that, the last row's `wall_ns` is this much longer.
        self.clocks = [*self._clocks_before, *self._gpu_clocks.read()] or None
        self.clock.wait()
        end = self.clock.now()
        self._tokens.stop()
        self._gpu_clocks.close()
        after = allocator_state.read_statistics(self.device)
        self.allocator = allocator_state.describe_allocator(self._memory_before, after, self.device)
        self.peak_memory_bytes = self._rows[-1][2]
        self.peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        clock = [row[0] for row in self._rows[:-1]] + [end]
        begun = set(self._begun)
        ends = [place for place in range(len(clock)) if place not in begun]
        walls = [clock[place] - clock[place - 1] for place in ends]
        self.window_wall_ns = sum(walls)
        self.cpu_taken_share = self._taken.share(end - self.window_began_ns - self.window_wall_ns)
        on_gpu = self.device.type == "cuda"
        gpu = [round(self.clock.between(*pair)) for pair in pairwise(self._marks)] if on_gpu else []
        self._settled_ns = float(drop_warmup(np.array(gpu or walls, dtype=float)).mean())
        names, tokens = self._tokens.read_times([self._marks[place - 1] for place in ends])
        with self._path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*STEP_COLUMNS, *names])
            for index, (wall, place) in enumerate(zip(walls, ends, strict=True)):
                writer.writerow([index, wall, gpu[index] if gpu else "", *self._rows[place][1:], *tokens[index]])

    def _note(self, items: int) -> None:
        memory = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        self._marks.append(self.clock.mark())
        self._rows.append((self.clock.now(), items, memory))


class TorchProfiler(Recorder):
    """Runs torch.profiler by its schedule; leaves the table of operators and the trace of the last cycle.

    Those of earlier cycles go to a folder for further files, if there is one.

    Only active steps count. Their wall time excludes the profiler's own work between steps.

    The table is torch's own, in ns and bytes; export_torch.py makes the tidy one of it.
    """

    torch_ranges = True

    def __init__(
        self,
        device: torch.device,
        options: Mapping[str, Any],
        window: int,
        operators: Path,
        trace: Path,
        more: Path | None = None,
    ) -> None:
        """options: wait, warmup, repeat, modules, shapes, memory, flops, stacks; window: active steps of a cycle.

        operators, trace: files of the last cycle; more: folder for those of the cycles before.
        """
        super().__init__(device)
        self.torch_modules = options["modules"]
        self._options, self._operators, self._trace = options, operators, trace
        self._rows: list[list[Any]] = []
        self._times: list[int] = []
        self._began, self._window = 0, window
        self._more, self._cycles = more, 0

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Start the schedule; meet: waits for the cell's other processes."""
        self.clock.wait()
        if self._more:
            self._more.mkdir(parents=True, exist_ok=True)
        # Not before, as steps that are timed until then have nothing to do with it.
        self._profiler = self._scheduled()
        self._profiler.start()
        meet()
        self.window_began_ns = self._began = self.clock.now()

    def step(self, items: int) -> None:
        """Tell the schedule that a step has ended."""
        self.clock.wait()
        if self._profiler.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._times.append(self.clock.now() - self._began)
            self.steps += 1
            # A trace takes what was added while it was recorded.
            self._profiler.add_metadata_json(*source_lines.trace_metadata())
        self._profiler.step()
        self._began = self.clock.now()

    @property
    def step_ns(self) -> float:
        """Median wall time of an active step."""
        return statistics.median(self._times)

    def stop(self) -> None:
        """End the schedule and write the table."""
        self.window_wall_ns = sum(self._times)
        self._profiler.stop()
        if self._more:
            allocator_history.write_snapshot(self._more)
        operator_table.write_rows(self._rows, self._operators)

    def explain(self, step: Callable[[Any], Any]) -> None:
        """Add to the trace what launched the kernels of a replayed step."""
        if isinstance(step, CapturedStep):
            cuda_graph_trace.attach_capture(self._trace, step.again, self._options["shapes"])

    def _scheduled(self) -> profile:
        options = self._options
        return profile(
            activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (self.device.type == "cuda"),
            schedule=schedule(
                wait=options["wait"], warmup=options["warmup"], active=self._window, repeat=options["repeat"]
            ),
            on_trace_ready=self._cycle,
            record_shapes=options["shapes"],
            profile_memory=options["memory"],
            with_flops=options["flops"],
            with_stack=options["stacks"],
            # Without it torch records stacks and then leaves them out of its tables.
            experimental_config=torch._C._profiler._ExperimentalConfig(verbose=options["stacks"]),
        )

    def _cycle(self, profiler: profile) -> None:
        if self._more and self._cycles:
            operator_table.keep_cycle(self._cycles - 1, self._rows, self._trace, self._more)
        self._cycles += 1
        self._rows = operator_table.read_rows(profiler, self._options)
        self._trace.unlink(missing_ok=True)
        profiler.export_chrome_trace(str(self._trace))


def describe_window(recorder: Recorder) -> dict[str, Any]:
    """Return the facts of a recorder's window: times and, without a profiler, the state of the machine in it."""
    times = {name: getattr(recorder, name) for name in WINDOW if hasattr(recorder, name)}
    return times | {name: known for name in STATE if (known := getattr(recorder, name, None)) is not None}
