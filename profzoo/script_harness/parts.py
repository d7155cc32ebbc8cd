"""Opens the ranges of a step's parts, one at a time, as a program's calls begin and end."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import record_function

from profzoo.harness.ranges import Ranges
from profzoo.range_names import make_torch_name

# Within these, what another part would be stays what it is: a forward pass that backward runs again, the loss of a
# network that computes it, a batch that its loader moves to the GPU. An optimizer may be handed a closure, which runs
# forward and backward within its step.
CLOSED = ("data", "transfer", "forward", "loss", "backward")


class PartRanges:
    """The parts of a step, as ranges that follow one another.

    A part that begins within an optimizer's step interrupts it: its range is closed meanwhile.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._parts: list[str] = []
        self._torch_range: record_function | None = None
        self._is_open = False

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Open the range of a part around the body, unless a part that it belongs to is open."""
        if not self.enter(part):
            yield
            return
        try:
            yield
        finally:
            self.leave()

    @property
    def current(self) -> str | None:
        """The part whose range is open."""
        return self._parts[-1] if self._parts else None

    def enter(self, part: str) -> bool:
        """Open a part's range; returns whether it was opened, and is to be left."""
        if self.current in CLOSED or self.current == part:
            return False
        self._close()
        self._parts.append(part)
        self._open(part)
        return True

    def leave(self) -> None:
        """Close the range that was opened last, and open again the one that it interrupted."""
        self._close()
        self._parts.pop()
        if self._parts:
            self._open(self._parts[-1])

    def _open(self, part: str) -> None:
        # As `with ranges(part)` does, without a context manager's cost in every step.
        self._ranges.open(part)
        self._is_open = True
        if self._ranges.torch_ranges:
            self._torch_range = record_function(make_torch_name(part))
            self._torch_range.__enter__()

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._torch_range:
            self._torch_range.__exit__(None, None, None)
            self._torch_range = None
        self._ranges.close()
        if self._ranges.closed:
            self._ranges.closed(self._parts[-1])
