"""Finds the lines of a program at which the host waits for the GPU, in one step of the warm-up.

torch's sync debug mode warns at each implicit wait: `.item()`, `nonzero`, boolean masks, blocking copies, and
`Stream.synchronize`. It does not see waits that a program asks for by other functions; those are wrapped for the step.

A warning reaches Python when the call of torch that has waited returns, on the thread that called it, so that the stack
of that moment names the line (torch/csrc/Exceptions.h). Warnings of torch's backward threads are kept until the
backward pass ends and then name the line that called it.
"""

import functools
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from profzoo.harness import safe_inspection
from profzoo.harness.ranges import Ranges
from profzoo.harness.single_step import SingleStep
from profzoo.harness.source_places import Place, PlaceFinder

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine

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
MOST_LINES = 50
WARN = 1
# Steps of warm-up from which on one is left undisturbed between the observed step and the window.
UNDISTURBED = 3


class DebugMode(Protocol):
    """Gets and sets torch's sync debug mode: 0 for none, 1 to warn, 2 to raise an error."""

    def get(self) -> int:
        """Mode that is set."""

    def set(self, mode: int) -> None:
        """Set the mode."""


class CudaDebugMode:
    """Sync debug mode of the process, for all its GPUs."""

    def get(self) -> int:
        """Mode that is set."""
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
        found = safe_inspection.attempt("lines that wait for the GPU were not named", self._describe, None)
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
            for (line, name), calls in sums.most_common(MOST_LINES)
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
