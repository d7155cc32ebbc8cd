"""Samples what Python does in one step of the warm-up: lines of the launching thread, and of other threads that run.

A thread of its own looks at the stacks every SPACING_S. It needs the interpreter's lock to look, so within the step
threads hand the lock over more often (SWITCH_S). A call that keeps the lock, such as `torch.tensor` of a list, is seen
when it returns, at its own line or the next one. A sample of the launching thread stands for the time since the one
before, without the time that the system kept the sampling thread from a CPU; one of another thread stands for the time
that this thread ran on a CPU.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from profzoo.harness import safe_inspection
from profzoo.harness.blocking_lines import step_to_observe
from profzoo.harness.ranges import Ranges
from profzoo.harness.single_step import SingleStep
from profzoo.harness.source_places import Place, PlaceFinder

if TYPE_CHECKING:
    from profzoo.cell.job_types import HostLine

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
        return safe_inspection.attempt("lines of the host's work were not named", lambda: self._describe(took), None)

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
