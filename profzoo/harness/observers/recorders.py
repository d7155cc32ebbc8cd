"""Recorders observe the window: markers alone for ncu and nsys, a clock, or torch.profiler."""

import csv
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from profzoo.errors import CollectError
from profzoo.harness import compiled_kernels, devices, ranges
from profzoo.harness.distributed import meet_nobody
from profzoo.harness.observers import allocator
from profzoo.harness.tasks import tokens
from profzoo.harness.variants import cuda_graph
from profzoo.harness.variants.cuda_graph import CapturedStep
from profzoo.io import chrome_trace
from profzoo.machine import time_slicing
from profzoo.statistics.percentiles import drop_warmup

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts, ClockReading


# Writes torch.profiler's own table of operators, in ns and bytes, and keeps the cycles before the last one.

# Columns of the table, and torch's names for the same quantities; torch gives times in microseconds.
TIMES = {
    "self_cpu_ns": "self_cpu_time_total",
    "cpu_ns": "cpu_time_total",
    "self_device_ns": "self_device_time_total",
    "device_ns": "device_time_total",
}
MEMORY = {
    "self_cpu_memory_bytes": "self_cpu_memory_usage",
    "cpu_memory_bytes": "cpu_memory_usage",
    "self_device_memory_bytes": "self_device_memory_usage",
    "device_memory_bytes": "device_memory_usage",
}
COLUMNS = ("device", "name", "shapes", "stack", "count", *TIMES, *MEMORY, "flops")
# Number of Python frames that distinguish operators if stacks are recorded.
STACK_DEPTH = 5
# Files of an earlier cycle, which is counted from 0, in the folder of further files.
OPERATORS, TRACE = "cycle-{}.operators.csv", "cycle-{}.trace.json.gz"


def read_rows(profiler: profile, options: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of COLUMNS for the cycle that a profiler has just ended; options: of the recorder."""
    averages = profiler.key_averages(
        group_by_input_shape=options["shapes"], group_by_stack_n=STACK_DEPTH * options["stacks"]
    )
    return [
        [event.device_type.name, event.key, event.input_shapes or "", "|".join(event.stack or []), event.count]
        + [round(getattr(event, field) * 1000) for field in TIMES.values()]
        + [getattr(event, field) for field in (*MEMORY.values(), "flops")]
        for event in averages
    ]


def leave_out_last_step(profiler: profile) -> None:
    """Leave out of a profiler's events those since the beginning of the last step that its schedule counts."""
    events: Any = profiler.events()
    begun = max(
        (one.time_range.start for one in events if one.name.startswith(chrome_trace.NUMBERED)), default=math.inf
    )
    events[:] = [one for one in events if one.time_range.start < begun]


def write_rows(rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Write rows of COLUMNS as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def keep_cycle(number: int, rows: Sequence[Sequence[Any]], trace: Path, folder: Path) -> None:
    """Write the table of an ended cycle to the folder, and move its trace there, before the next one replaces both."""
    write_rows(rows, folder / OPERATORS.format(number))
    trace.rename(folder / TRACE.format(number))


# Measures CPU contention: the share of a thread's time taken by other programs or by the hypervisor.

# Two times of this thread in ns: running on a CPU, and ready to run but waiting for a CPU (Linux, sched-stats.rst).
SCHEDULED = Path("/proc/thread-self/schedstat")
# Sums over all CPUs, in ticks: user, nice, system, idle, iowait, irq, softirq and steal (proc_stat(5)).
COUNTED = Path("/proc/stat")
WORKING, STOLEN = (0, 1, 2, 5, 6), 7


class CpuContention:
    """Measures contention from its creation on, for the thread that creates it."""

    def __init__(self) -> None:
        self._ns, self._waited, self._ticks = time.perf_counter_ns(), _waited(), _ticks()

    def share(self, rested_ns: int = 0) -> float | None:
        """Share of the time since creation that was taken from the thread, 0 to 1; None if the system counts neither.

        rested_ns: time in ns that the thread rested on purpose, which does not count. Stolen time is known only as a
        sum over all CPUs: its share is stolen ticks divided by working and stolen ticks.
        """
        ns, waited, ticks = time.perf_counter_ns() - self._ns - rested_ns, _waited(), _ticks()
        parts = []
        if waited is not None and self._waited is not None and ns:
            parts.append((waited - self._waited) / ns)
        if ticks and self._ticks:
            gone = [later - earlier for earlier, later in zip(self._ticks, ticks, strict=True)]
            wanted = sum(gone[place] for place in (*WORKING, STOLEN))
            parts.append(gone[STOLEN] / wanted if wanted else 0.0)
        return min(sum(parts), 1.0) if parts else None


def _waited() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(SCHEDULED.read_text().split()[1])
    return None


def _ticks() -> list[int]:
    with suppress(OSError, ValueError):
        fields = COUNTED.read_text().partition("\n")[0].split()[1 : STOLEN + 2]
        return [int(field) for field in fields] if len(fields) > STOLEN else []
    return []


# Reads the clock of the GPU's multiprocessors at both ends of the window, and what limits it, from NVML.
#
# Only where NVIDIA's binding (nvidia-ml-py) and the driver's library are there. Nothing is read between two steps.


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


# Measures when a device has finished its work: with CUDA events, or with the host's clock for a CPU.


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


# Times the tokens that each step of a window generates, without a synchronisation between them.


class TokenTimes:
    """Marks of the tokens of each step, from `start` to `stop`; call `end_step` at the end of each step."""

    def __init__(self, clock: Clock) -> None:
        """clock: the device's."""
        self._clock = clock
        self._marks: list[Any] = []
        self._steps: list[list[Any]] = []

    def start(self) -> None:
        """Note tokens from now on."""
        tokens.listen(self._note)

    def end_step(self) -> None:
        """Take the tokens that were noted since the last step as those of the step that ends here."""
        self._steps.append(self._marks)
        self._marks = []

    def stop(self) -> None:
        """Note no more tokens."""
        tokens.ignore(self._note)

    def read_times(self, begins: Sequence[Any]) -> tuple[list[str], list[list[int | str]]]:
        """Return names of columns, and one row of them per step: the time in ns of each token of the step.

        A token takes from the one before it, or from the begin of the step, until the device has finished it. Steps
        with fewer tokens than others have empty fields at the end. Steps without tokens give no columns.

        begins: marks of the begins of the steps; the device must have finished all of them.
        """
        most = max(map(len, self._steps), default=0)
        rows: list[list[int | str]] = []
        for begin, marks in zip(begins, self._steps, strict=True):
            times = [round(self._clock.between(*pair)) for pair in pairwise([begin, *marks])]
            rows.append([*times, *[""] * (most - len(times))])
        return [f"token_{place}_ns" for place in range(most)], rows

    def _note(self) -> None:
        self._marks.append(self._clock.mark())


STEP_COLUMNS, OWN = ("step", "wall_ns", "gpu_ns", "items", "peak_memory_bytes"), "own_ns"
# Duration of a shift in ns: longer than waking up takes, and shorter than the machine's state usually lasts.
SHIFT_NS = 30_000_000
# Attributes of a recorder that become facts; of the second kind, only those that are known.
WINDOW, STATE = ("step_ns", "window_began_ns", "window_wall_ns", "cpu_taken_share", "shifts"), ("allocator", "clocks")


class Recorder:
    """Marks the window for ncu and nsys (cudaProfilerStart and -Stop) and measures its time.

    Call `start` before the window, `step` after each step of it, and `stop` at its end.
    """

    torch_ranges, torch_modules = False, False

    def __init__(self, device: torch.device, clock: Clock | None = None) -> None:
        """device: what the model runs on; clock: the device's, unless given."""
        self.device, self.clock = device, clock or timer_of(device)
        self.steps, self.window_wall_ns = 0, 0
        # When the window opened, by the host's monotonic clock, which other processes of it share.
        self.window_began_ns = 0
        # How long the window is to last at the least, in seconds.
        self.least_s = 0.0
        # Whether the window closes some time after its last step, which is to be no part of it.
        self.late = False
        self._first: Any = None
        self._last: Any = None

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Open the window; meet: waits for other processes, whose profilers may take tens of ms longer to start."""
        self.clock.wait()
        if self.device.type == "cuda":
            torch.cuda.profiler.start()
        meet()
        self.window_began_ns = self.clock.now()

    def step(self, items: int | None) -> None:
        """Note that the host has finished a step of this many samples, None if that is not known."""
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

    On a CPU, compared processes may run at once or take turns. A turn (shift) ends after the step that reaches
    SHIFT_NS. The wait between two shifts is part of no step. own_ns, which only such processes have, is the time of the
    step in which its thread had a core; it is wall_ns if the thread waited for anything else than a core.
    """

    def __init__(self, device: torch.device, path: Path) -> None:
        """path: the CSV to write."""
        super().__init__(device)
        # No turns on a GPU: all waiting processes would hold GPU memory at the same time.
        self._worker = time_slicing.find_worker() if device.type == "cpu" else None
        beside = device.type == "cpu" and time_slicing.BESIDE in os.environ
        self._compared = beside or self._worker is not None
        # Time on a core in ns, and waits for anything else, by the end of each row.
        self._on_core: list[tuple[int, int]] = []
        # Indices of rows that mark the start of a shift, not the end of a step.
        self._begun = [0]
        # Share of the window's time in which other programs used this process's CPU.
        self.cpu_taken_share: float | None = None
        # Peak from the start of the process to the end of the window.
        self.peak_memory_bytes: int | None = None
        self.peak_rss_bytes = 0
        self._path = path
        self._rows: list[tuple[int, int | None, int | None]] = []
        self._marks: list[Any] = []
        self._settled_ns = 0.0
        # What the allocator did in the window, and clocks at both of its ends; None where nothing is known.
        self.allocator: AllocatorFacts | None = None
        self.clocks: list[ClockReading] | None = None
        self._gpu_clocks = GpuClocks(devices.read_uuid(device))

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Open the window; meet: waits for other processes."""
        # Before the wait, while the GPU still works.
        self._clocks_before = self._gpu_clocks.read()
        self.clock.wait()
        self._memory_before = allocator.read_statistics(self.device)
        self._taken = CpuContention()
        self._tokens = TokenTimes(self.clock)
        self._tokens.start()
        meet()
        self._note(0)
        self.window_began_ns = self._rows[0][0]

    def step(self, items: int | None) -> None:
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
        end = self._rows[-1][0] if self.late else self.clock.now()
        self._tokens.stop()
        self._gpu_clocks.close()
        after = allocator.read_statistics(self.device)
        self.allocator = allocator.describe_allocator(self._memory_before, after, self.device)
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
        own = [[self._own_ns(place, wall)] if self._compared else [] for wall, place in zip(walls, ends, strict=True)]
        with self._path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*STEP_COLUMNS, *([OWN] if self._compared else []), *names])
            for index, (wall, place) in enumerate(zip(walls, ends, strict=True)):
                row = [index, wall, gpu[index] if gpu else "", *self._rows[place][1:]]
                writer.writerow([*row, *own[index], *tokens[index]])

    def _note(self, items: int | None) -> None:
        memory = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        self._marks.append(self.clock.mark())
        self._rows.append((self.clock.now(), items, memory))
        if self._compared:
            self._on_core.append((time.thread_time_ns(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw))

    def _own_ns(self, place: int, wall_ns: int) -> int:
        (before, waits), (after, waits_after) = self._on_core[place - 1 : place + 1]
        return after - before if waits == waits_after else wall_ns


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
        if self.torch_modules:
            # Before anything is compiled, in the warm-up.
            compiled_kernels.watch()
        self._options, self._operators, self._trace = options, operators, trace
        self._rows: list[list[Any]] = []
        self._times: list[int] = []
        self._began, self._window = 0, window
        self._more, self._cycles, self._stopping = more, 0, False

    def start(self, meet: Callable[[], None] = meet_nobody) -> None:
        """Start the schedule; meet: waits for the cell's other processes.

        Raises:
            CollectError: the program runs a profiler of its own, whose trace this one would end.
        """
        if torch.autograd._profiler_enabled():
            raise CollectError("the program runs torch.profiler itself: leave that out while its steps are traced")
        self.clock.wait()
        if self._more:
            self._more.mkdir(parents=True, exist_ok=True)
        # Not before, as steps that are timed until then have nothing to do with it.
        self._profiler = self._scheduled()
        self._profiler.start()
        meet()
        self.window_began_ns = self._began = self.clock.now()

    def step(self, items: int | None) -> None:
        """Tell the schedule that a step has ended."""
        self.clock.wait()
        if self._profiler.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._times.append(self.clock.now() - self._began)
            self.steps += 1
            # A trace takes what was added while it was recorded.
            self._profiler.add_metadata_json(*ranges.trace_metadata())
            if self.torch_modules:
                self._profiler.add_metadata_json(*compiled_kernels.trace_metadata())
        self._profiler.step()
        self._began = self.clock.now()

    @property
    def step_ns(self) -> float:
        """Median wall time of an active step."""
        return statistics.median(self._times)

    def stop(self) -> None:
        """End the schedule and write the table."""
        self.window_wall_ns = sum(self._times)
        self._stopping = True
        self._profiler.stop()
        if self._more:
            allocator.write_snapshot(self._more)
        write_rows(self._rows, self._operators)

    def explain(self, step: Callable[[Any], Any]) -> None:
        """Add to the trace what launched the kernels of a replayed step."""
        if isinstance(step, CapturedStep):
            cuda_graph.attach_capture(self._trace, step.again, self._options["shapes"])

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
            keep_cycle(self._cycles - 1, self._rows, self._trace, self._more)
        self._cycles += 1
        if self._stopping:
            # A cycle that ends now is not complete, and neither is its last step.
            leave_out_last_step(profiler)
        self._rows = read_rows(profiler, self._options)
        self._trace.unlink(missing_ok=True)
        profiler.export_chrome_trace(str(self._trace))
        if self._stopping:
            chrome_trace.rewrite_events(self._trace, chrome_trace.drop_last_step)


def describe_window(recorder: Recorder) -> dict[str, Any]:
    """Return the facts of a recorder's window: times and, without a profiler, the state of the machine in it."""
    times = {name: getattr(recorder, name) for name in WINDOW if hasattr(recorder, name)}
    return times | {name: known for name in STATE if (known := getattr(recorder, name, None)) is not None}
