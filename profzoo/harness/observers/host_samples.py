"""Finds the lines at which the host waits for the GPU, and samples what Python does, each in one step of the warm-up.

A thread of its own looks at the stacks every SPACING_S. It needs the interpreter's lock to look, so within the step
threads hand the lock over more often (SWITCH_S). A call that keeps the lock, such as `torch.tensor` of a list, is seen
when it returns, at its own line or the next one. A sample of the launching thread stands for the time since the one
before, without the time that the system kept the sampling thread from a CPU; one of another thread stands for the time
that this thread ran on a CPU.
"""

import functools
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from profzoo.harness import inspection
from profzoo.harness.ranges import Ranges
from profzoo.harness.source_places import Place, PlaceFinder, SingleStep

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine, HostLine


# Finds the lines of a program at which the host waits for the GPU, in one step of the warm-up.
#
# torch's sync debug mode warns at each implicit wait: `.item()`, `nonzero`, boolean masks, blocking copies, and
# `Stream.synchronize`. It does not see waits that a program asks for by other functions; those are wrapped for the
# step.
#
# A warning reaches Python when the call of torch that has waited returns, on the thread that called it, so that the
# stack of that moment names the line (torch/csrc/Exceptions.h). Warnings of torch's backward threads are kept until the
# backward pass ends and then name the line that called it.

# What torch's warning of a wait says, and its warning when the mode is switched on for the first time.
WAITED, PROTOTYPE = "called a synchronizing CUDA operation", "Synchronization debug mode is a prototype"
# Functions that wait without a warning, by the objects that hold them. The functions of torch.cuda call the first two,
# whatever name a program has imported them by. Emptying the memory cache frees memory, for which the driver waits.
EXPLICIT: tuple[tuple[Any, str], ...] = (
    (torch._C, "_cuda_synchronize"),
    (torch._C, "_cuda_emptyCache"),
    (torch._C, "_accelerator_synchronizeDevice"),
    (torch.cuda.Event, "synchronize"),
)
# Most lines that become facts: those with the most calls.
BLOCKING_LINES_MOST_LINES = 50
WARN = 1
# Steps of warm-up from which on one is left undisturbed between the observed step and the window.
UNDISTURBED = 3


class DebugMode(Protocol):
    """Gets and sets torch's sync debug mode: 0 for none, 1 to warn, 2 to raise an error."""

    def get(self) -> int:
        """Return the mode that is set."""

    def set(self, mode: int) -> None:
        """Set the mode."""


class CudaDebugMode:
    """Sync debug mode of the process, for all its GPUs."""

    def get(self) -> int:
        """Return the mode that is set."""
        return torch.cuda.get_sync_debug_mode()

    def set(self, mode: int) -> None:
        """Set the mode."""
        torch.cuda.set_sync_debug_mode(mode)


@dataclass(frozen=True)
class Wait:
    """A wait: its place in the program, and the range that was open."""

    place: Place
    range: str


def step_to_observe(warmup: int) -> int | None:
    """Index of the warm-up step to observe; None if there is none whose caches an earlier step has filled.

    A longer warm-up keeps one undisturbed step before the window.

    >>> [step_to_observe(warmup) for warmup in (0, 1, 2, 3, 10)]
    [None, None, 1, 1, 8]
    """
    if warmup < 2:
        return None
    return warmup - 2 if warmup >= UNDISTURBED else warmup - 1


class BlockingLines:
    """Observes one step of a program: where it waits for the GPU, and how often."""

    def __init__(self, ranges: Ranges, outermost: CodeType | None = None, mode: DebugMode | None = None) -> None:
        """outermost: code that runs the steps, beyond which no frame is the program's; mode: by default CUDA's."""
        self._ranges, self._mode = ranges, mode or CudaDebugMode()
        self._finder = PlaceFinder(outermost)
        self._lock = threading.Lock()
        self._waits: Counter[Wait] = Counter()
        self._names: dict[Wait, Mapping[str, Any]] = {}
        self._undo: list[Callable[[], None]] = []
        self._replaced: Callable[..., Any] = warnings.showwarning
        # The filter that lets all warnings of waits through, and whether the program had the same one.
        self._filter: Any = None
        self._keeps_filter = False
        self.running = False
        self._asked = threading.local()

    def start(self) -> None:
        """Begin to observe."""
        before = self._mode.get()
        # Filters and hooks are set by hand: a program may enter and leave its own `catch_warnings` in between.
        filters = list(warnings.filters)
        warnings.filterwarnings("always", message=WAITED)
        self._filter = warnings.filters[0]
        self._keeps_filter = self._filter in filters
        self._replaced, warnings.showwarning = warnings.showwarning, self._note_warning
        for owner, name in EXPLICIT:
            self._wrap(owner, name)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=PROTOTYPE)
            self._mode.set(WARN)
        self._undo.append(lambda: self._mode.set(before))
        self.running = True

    def stop(self) -> "list[BlockingLine] | None":
        """Stop observing and restore what was changed; returns the lines, or None if the step hid its warnings."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self.running = False
        seen = warnings.showwarning == self._note_warning and self._filter in warnings.filters
        if warnings.showwarning == self._note_warning:
            warnings.showwarning = self._replaced
        if self._filter in warnings.filters and not self._keeps_filter:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        found = inspection.attempt("lines that wait for the GPU were not named", self._describe, None)
        self._waits.clear()
        self._names.clear()
        return found if seen else None

    def _describe(self) -> "list[BlockingLine] | None":
        """Add up waits that a reader cannot tell apart, those with the most calls first."""
        sums: Counter[tuple[Any, str]] = Counter()
        for wait, calls in self._waits.items():
            sums[self._finder.describe(wait.place, self._names[wait]), wait.range] += calls
        return [
            {
                "file": line.file,
                "line": line.line,
                "function": line.function,
                "text": line.text,
                "operation": line.operation,
                "range": name,
                "calls": calls,
            }
            for (line, name), calls in sums.most_common(BLOCKING_LINES_MOST_LINES)
        ]

    def _note_warning(self, message: Any, *given: Any, **named: Any) -> None:
        """Stand in for `warnings.showwarning`: note a wait, and pass any other warning on."""
        if not str(message).startswith(WAITED):
            self._replaced(message, *given, **named)
            return
        if not getattr(self._asked, "now", False):
            self._note()

    def _note(self) -> None:
        """Count a wait at the place that the calling thread's stack names."""
        found = self._finder.find(sys._getframe(1))
        if found:
            place, names = found
            wait = Wait(place, self._ranges.current)
            with self._lock:
                self._waits[wait] += 1
                self._names[wait] = names

    def _wrap(self, owner: Any, name: str) -> None:
        """Count each call of a function until the end of the step."""
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def call(*given: Any, **named: Any) -> Any:
            self._note()
            # A later version of torch may warn here too.
            self._asked.now = True
            try:
                return original(*given, **named)
            finally:
                self._asked.now = False

        setattr(owner, name, call)
        self._undo.append(lambda: setattr(owner, name, original))


class ObservedStep(SingleStep[list["BlockingLine"]]):
    """Observes one step of a loop by its index; `found` holds the lines afterwards, None if nothing was observed."""

    def __init__(self, lines: BlockingLines | None, warmup: int) -> None:
        """lines: None where there is nothing to observe, such as on a CPU."""
        super().__init__(step_to_observe(warmup), lambda: lines)


SPACING_S, SWITCH_S = 3e-4, 2e-4
# Most lines that become facts, of the longest time, and the least share of the step that a line takes.
MOST_LINES, LEAST_SHARE = 20, 0.01
# Of a step with fewer samples nothing is told.
FEWEST = 10
# The file in which a DataLoader gets samples and then collates them, and functions that get samples.
FETCHING, GETTING = "torch/utils/data/_utils/fetch.py", ("__getitem__", "__getitems__", "__next__", "<listcomp>")
READING, COLLATING = "reading", "collating"
# Times in ns that a thread ran on a CPU, and waited for one (Linux, sched-stats.rst).
SCHEDULED = "/proc/self/task/{}/schedstat"
# Name of a thread, range, kind of work in a DataLoader, and place.
Seen = tuple[str, str, str, Place]


class HostSamples:
    """Samples of the thread that calls `start`, and of other Python threads, until `stop`."""

    def __init__(self, ranges: Ranges, outermost: CodeType | None = None) -> None:
        """outermost: code that runs the steps, beyond which no frame is the program's."""
        self._ranges, self._finder = ranges, PlaceFinder(outermost)
        self._sums: Counter[Seen] = Counter()
        self._names: dict[Place, Mapping[str, Any]] = {}
        self._ran: dict[int, int] = {}
        self._over = threading.Event()
        self._sampler: threading.Thread | None = None
        self._count, self._known_ns, self._began, self._launching = 0, 0, 0, 0
        self._switched, self._set = 0.0, 0.0

    def start(self) -> None:
        """Begin to sample."""
        self._launching, self._began = threading.get_ident(), time.perf_counter_ns()
        self._ran = {one.native_id: _scheduled_ns(one.native_id)[0] for one in threading.enumerate() if one.native_id}
        self._sampler = threading.Thread(target=self._sample, name="profzoo samples", daemon=True)
        self._switched = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        # Python rounds it.
        self._set = sys.getswitchinterval()
        self._sampler.start()

    def stop(self) -> "list[HostLine] | None":
        """Stop sampling; returns the lines, or None if the step was too short."""
        self._over.set()
        if self._sampler:
            self._sampler.join()
        # A program may have set another interval meanwhile.
        if sys.getswitchinterval() == self._set:
            sys.setswitchinterval(self._switched)
        took = time.perf_counter_ns() - self._began
        if self._count < FEWEST:
            return None
        return inspection.attempt("lines of the host's work were not named", lambda: self._describe(took), None)

    def _sample(self) -> None:
        own, last = threading.get_native_id(), self._began
        _, kept = _scheduled_ns(own)
        while not self._over.is_set():
            time.sleep(SPACING_S)
            frames, now, (_, waited) = sys._current_frames(), time.perf_counter_ns(), _scheduled_ns(own)
            # The launching thread waits for this one by now.
            if self._over.is_set():
                return
            # The stacks change as soon as another thread has the lock, so that of the launching thread comes first.
            spent = max(now - last - waited + kept, 0)
            self._known_ns += spent
            with suppress(Exception):
                self._note("", self._ranges.current, frames.get(self._launching), spent)
                self._note_others(frames)
            last, kept = now, waited
            self._count += 1
            del frames

    def _note_others(self, frames: Mapping[int, FrameType]) -> None:
        """Note threads that have run since they were last looked at; those of profzoo have no place."""
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0)
            if frame is None or not thread.native_id or thread.ident in (self._launching, threading.get_ident()):
                continue
            ran, _ = _scheduled_ns(thread.native_id)
            # A thread that is new has begun within the step.
            if (spent := ran - self._ran.get(thread.native_id, 0)) > 0:
                self._note(thread.name, "", frame, spent)
            self._ran[thread.native_id] = ran

    def _note(self, thread: str, name: str, frame: FrameType | None, ns: int) -> None:
        found = self._finder.find(frame)
        if found:
            place, names = found
            self._names[place] = names
            self._sums[thread, name, _work_of_loader(frame), place] += ns

    def _describe(self, took: int) -> "list[HostLine]":
        """Add up places that a reader cannot tell apart, those of the longest time first."""
        sums: dict[Any, float] = {}
        known = max(self._known_ns, 1)
        for (thread, name, work, place), ns in self._sums.items():
            line = self._finder.describe(place, self._names[place])
            share = ns / (took if thread else known)
            key = thread, name, work, line.file, line.line, line.function, line.text
            sums[key] = sums.get(key, 0.0) + share
        ordered = sorted(sums.items(), key=lambda one: -one[1])
        return [
            {
                "thread": thread,
                "range": name,
                "work": work,
                "file": file,
                "line": number,
                "function": function,
                "text": text,
                "share": round(share, 4),
            }
            for (thread, name, work, file, number, function, text), share in ordered[:MOST_LINES]
            if share >= LEAST_SHARE
        ]


class SampledStep(SingleStep[list["HostLine"]]):
    """Samples one step of a loop by its index; `found` holds the lines afterwards, None if nothing was sampled."""

    def __init__(self, warmup: int, ranges: Ranges, outermost: CodeType | None = None) -> None:
        """warmup: number of steps before the window; the others: as for HostSamples."""
        super().__init__(step_to_observe(warmup), lambda: HostSamples(ranges, outermost))


def _scheduled_ns(number: int) -> tuple[int, int]:
    """Return how many ns a thread has run on a CPU and waited for one, by its number; 0 where this is not known."""
    with suppress(OSError, ValueError):
        ran, waited, *_ = map(int, Path(SCHEDULED.format(number)).read_text().split())
        return ran, waited
    return 0, 0


def _work_of_loader(frame: FrameType | None) -> str:
    """Return READING or COLLATING if the stack is within a DataLoader that gets samples; empty otherwise."""
    inner = ""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(FETCHING) and code.co_name == "fetch":
            return READING if inner in ("", *GETTING) else COLLATING
        frame, inner = frame.f_back, code.co_name
    return ""
