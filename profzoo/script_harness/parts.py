"""Opens the ranges of a step's parts, one at a time, as a program's calls begin and end."""

from profzoo.harness.ranges import Ranges

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

    @property
    def current(self) -> str | None:
        """The part whose range is open."""
        return self._parts[-1] if self._parts else None

    def enter(self, part: str) -> bool:
        """Open a part's range; returns whether it was opened, and is to be left."""
        if self.current in CLOSED or self.current == part:
            return False
        if self._parts:
            self._ranges.end()
        self._parts.append(part)
        self._ranges.begin(part)
        return True

    def leave(self) -> None:
        """Close the range that was opened last, and open again the one that it interrupted."""
        self._ranges.end()
        self._parts.pop()
        if self._parts:
            self._ranges.begin(self._parts[-1])
