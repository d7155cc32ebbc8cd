"""Observes one step of a loop, by its index."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

Seen = TypeVar("Seen", covariant=True)
Kept = TypeVar("Kept")


class Observer(Protocol[Seen]):
    """Observes between `start` and `stop`."""

    def start(self) -> None:
        """Begin to observe."""

    def stop(self) -> Seen | None:
        """Stop, restore everything, and return what was seen; None if that is not known."""


class SingleStep(Generic[Kept]):
    """Observes the step with a certain index; `found` holds what was seen, None if nothing was observed."""

    def __init__(self, index: int | None, make: Callable[[], Observer[Kept] | None]) -> None:
        """index: of the step; None for no step. make: returns its observer as it begins; None observes nothing."""
        self._index, self._make = index, make
        self._running: Observer[Kept] | None = None
        self.found: Kept | None = None

    def begin(self, index: int) -> None:
        """Begin to observe if this is the step to observe."""
        if index == self._index and (made := self._make()):
            self._running = made
            made.start()

    def end(self) -> None:
        """Stop observing, if the step that ends now was observed."""
        if self._running:
            self.found, self._running = self._running.stop(), None

    @contextmanager
    def during(self, index: int) -> Iterator[None]:
        """Observe the body if it is the step to observe; restores everything, also when the body raises."""
        self.begin(index)
        try:
            yield
        finally:
            self.end()
