"""Times the tokens that each step of a window generates, without a synchronisation between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from profzoo.harness import timers
from profzoo.harness.tasks import generation


class TokenTimes:
    """Marks of the tokens of each step, from `start` to `stop`; call `end_step` at the end of each step."""

    def __init__(self, clock: timers.Clock) -> None:
        """clock: the device's."""
        self._clock = clock
        self._marks: list[Any] = []
        self._steps: list[list[Any]] = []

    def start(self) -> None:
        """Note tokens from now on."""
        generation.listen(self._note)

    def end_step(self) -> None:
        """Take the tokens that were noted since the last step as those of the step that ends here."""
        self._steps.append(self._marks)
        self._marks = []

    def stop(self) -> None:
        """Note no more tokens."""
        generation.ignore(self._note)

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
