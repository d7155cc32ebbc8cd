"""Says how many steps the next processes of trials have to time, by how much the steps of the first ones vary.

Processes of one setting differ from each other by more than their medians are uncertain, so long windows of steady
steps decide nothing sooner. A comparison has the variation of both anyway, because it is made of whole processes.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from profzoo.experiments.decided_rounds import read_steady_steps

# The mean of a window is to be known to this part of the margin of equivalence.
PART = 0.1
# The fewest steps of a window: of these, the steady state takes at least five (statistics/steady_state.py).
LEAST = 8
WORD = "window="


def count_needed_steps(spread: float, margin: float, given: int) -> int:
    """Return the number of steps of a window whose mean is known to a tenth of the margin, at most as many as given.

    Args:
        spread: standard deviation of the steps of a process over their mean.
        margin: largest relative difference that counts as equivalent.
        given: steps of the window that the cell has.

    >>> count_needed_steps(0.003, 0.02, 20), count_needed_steps(0.008, 0.02, 20), count_needed_steps(0.05, 0.02, 20)
    (8, 16, 20)
    """
    return min(given, max(LEAST, math.ceil((spread / (PART * margin)) ** 2)))


def measure_spread(paths: Iterable[Path]) -> float:
    """Return the relative spread of the steps of a process, the median of all; 1 without steps. paths: CSVs."""
    several = [read_steady_steps(path) for path in paths]
    found = [float(steps.std(ddof=1) / steps.mean()) if len(steps) > 1 else 1.0 for steps in several]
    return median(found) if found else 1.0


def shorten_window(words: Sequence[str], paths: Iterable[Path], margin: float) -> list[str]:
    """Return the change of a cell's words by which the next processes time only as many steps as they have to.

    words: the cell's own. paths: steps of its processes so far. Empty for a cell without a window.
    """
    given = next((word.removeprefix(WORD) for word in words if word.startswith(WORD)), "")
    if not given.isdecimal():
        return []
    return [f"{WORD}{count_needed_steps(measure_spread(paths), margin, int(given))}"]
