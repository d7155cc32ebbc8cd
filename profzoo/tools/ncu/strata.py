"""Groups a window's launches into cells and strata: which profiled launches represent which others.

Two launches are assumed to do the same work if they have the same launch configuration and take similar times, as in
Sieve (Naderan-Tahan et al., ISPASS 2023) and STEM+ROOT (Chung et al., MICRO 2025). DRAM bytes also depend on the
content of the L2 cache, and so on the launches before. In this module, a cell is a group of launches that agree in
configuration, time, range and the launches before. A stratum is a cell with profiled launches, together with the cells
of the same configuration that have none and are most similar to it.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Launches take similar times if the longest takes at most LIKE times the shortest plus MORE_NS. Earlier launches are
# compared with wider limits, so that chance does not split one history into two.
LIKE, MORE_NS = 1.1, 300.0
LIKE_BEFORE, MORE_BEFORE_NS = 1.3, 1000.0
# The time of one launch varies by JITTER (relative) plus JITTER_NS. If times differ by more, the work may differ STEEP
# times as much, because a part of the time is the launch itself.
JITTER, JITTER_NS, STEEP = 0.005, 100.0, 2.0
# Spread of DRAM bytes, relative to the traffic of a launch during its time or MOVED_NS, whichever is less; in MOVED_NS
# a launch moves more than L2 holds. ALIKE holds for launches of one cell. OTHER_RANGE is added for different ranges,
# and a value of BEFORE if the last launch, or the last two, four or twelve launches before differ.
MOVED_NS, ALIKE, OTHER_RANGE = 40_000.0, 0.03, 0.5
BEFORE: Mapping[int, float] = {1: 0.17, 2: 0.05, 4: 0.05, 12: 0.15}
# Relative spread of work between launches that take equal times.
UNSEEN = 0.02
# If a configuration has more cells than this, its launches are compared by shorter histories.
MOST_CELLS = 100


class Window:
    """The launches of a window, in cells.

    Attributes:
        launches: the census, one row per launch.
        cells: cell of each launch, shape (launches,).
        sizes, times: number of launches of each cell, and their mean time in ns; shape (cells,).
        configurations: configuration of each cell, shape (cells,).
        parts: for each configuration, the array of its cells.
        moved: ns of traffic of each cell: its time, at most MOVED_NS; shape (cells,).
        work, traffic: for each configuration, a matrix of shape (its cells, its cells): by how much two cells differ in
            work, in ns, and in DRAM bytes, in ns of traffic.
        totals: work and traffic of all launches in ns, shape (2,).
    """

    def __init__(self, census: pd.DataFrame) -> None:
        """Group the launches into cells.

        census: one row per launch, in order, with KEYS, `range` and GPU_TIME in ns.
        """
        self.launches = census
        times = census[GPU_TIME].to_numpy(dtype=float)
        keys = census[KEYS].assign(range=census["range"].fillna(""))
        of_launch = keys.groupby(KEYS, sort=False, dropna=False).ngroup().to_numpy()
        ranges = pd.factorize(keys["range"])[0]
        alike = group_like_times(times, _numbered(of_launch, ranges), LIKE, MORE_NS)
        last = group_like_times(times, of_launch, LIKE_BEFORE, MORE_BEFORE_NS)
        before = {depth: number_histories(last, depth) for depth in BEFORE}
        self.cells = _number_groups(of_launch, alike, before)
        self.sizes = np.bincount(self.cells)
        self.times = np.bincount(self.cells, times) / self.sizes
        first = np.unique(self.cells, return_index=True)[1]
        self.configurations = of_launch[first]
        self.parts = [np.flatnonzero(self.configurations == one) for one in range(int(of_launch.max()) + 1)]
        self.moved = np.minimum(self.times, MOVED_NS)
        # The shortest launch is taken to do almost no work.
        worked = times - 0.8 * times.min()
        self.totals = np.array([worked.sum(), np.minimum(times, MOVED_NS).sum()])
        told = {depth: numbers[first] for depth, numbers in before.items()}
        self.work = [_unlike_work(self.times[part]) for part in self.parts]
        self.traffic = [
            self._unlike_traffic(part, ranges[first], {depth: one[part] for depth, one in told.items()})
            for part in self.parts
        ]

    def _unlike_traffic(self, part: np.ndarray, ranges: np.ndarray, before: Mapping[int, np.ndarray]) -> np.ndarray:
        moved = self.moved[part]
        apart = OTHER_RANGE**2 * _differ(ranges[part])
        for depth, spread in BEFORE.items():
            apart = apart + spread**2 * _differ(before[depth])
        return np.sqrt(apart) * np.minimum(moved[:, None], moved[None, :])

    def standing(self, configuration: int, samples: np.ndarray) -> np.ndarray | None:
        """Return for each cell of a configuration the cell that represents it; None if no launch of it is profiled.

        Cells are given as indices into the configuration's `parts`.

        samples: number of profiled launches of each cell of the configuration.
        """
        there = np.flatnonzero(samples)
        if not len(there):
            return None
        apart = self.apart(configuration)[:, there]
        by = there[np.argmin(apart, axis=1)]
        by[there] = there
        return by

    def apart(self, configuration: int) -> np.ndarray:
        """Return a matrix of squared differences between a configuration's cells in work and traffic.

        The differences are relative to the totals of the window.
        """
        work, traffic = self.work[configuration], self.traffic[configuration]
        return (work / self.totals[0]) ** 2 + (traffic / self.totals[1]) ** 2


def group_like_times(times: np.ndarray, groups: np.ndarray, ratio: float, more_ns: float) -> np.ndarray:
    """Return a number per launch; launches of one group with similar times get the same number.

    Args:
        times: ns of each launch.
        groups: number of each launch's group.
        ratio, more_ns: the longest of similar launches takes at most `ratio` times the shortest plus `more_ns`.

    >>> group_like_times(np.array([1e4, 9e4, 1.05e4]), np.array([0, 0, 0]), 1.1, 300).tolist()
    [0, 1, 0]
    """
    order = np.lexsort((times, groups))
    numbers, number, group, least = np.empty(len(order), dtype=int), -1, -1, 0.0
    for place in order:
        if groups[place] != group or times[place] > least * ratio + more_ns:
            number, group, least = number + 1, int(groups[place]), float(times[place])
        numbers[place] = number
    return numbers


def number_histories(numbers: np.ndarray, depth: int) -> np.ndarray:
    """Return a number per launch; equal numbers mean that the `depth` launches before are equal.

    The first launches of the window are taken to follow its last ones, as in a sequence of equal steps.

    >>> number_histories(np.array([5, 7, 5, 7]), 1).tolist()
    [1, 0, 1, 0]
    """
    before = np.stack([np.roll(numbers, back) for back in range(1, depth + 1)], axis=1)
    return np.unique(before, axis=0, return_inverse=True)[1].reshape(-1)


def _number_groups(configurations: np.ndarray, alike: np.ndarray, before: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the cell of each launch: equal configuration, range, similar time and history.

    Configurations that would have more than MOST_CELLS cells are split by shorter histories.
    """
    depths = sorted(BEFORE, reverse=True)
    cells = _numbered(alike, before[depths[0]])
    for depth in [*depths[1:], 0]:
        many = np.bincount(configurations, _firsts(cells))[configurations] > MOST_CELLS
        coarser = _numbered(alike, before[depth]) if depth else alike
        cells = _numbered(np.where(many, coarser, cells.max() + 1 + cells), many)
    return cells


def _firsts(numbers: np.ndarray) -> np.ndarray:
    """Return 1 at the first occurrence of each number, and 0 elsewhere."""
    marks = np.zeros(len(numbers))
    marks[np.unique(numbers, return_index=True)[1]] = 1
    return marks


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """Return a number per row; rows with equal values in all columns get the same number."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _differ(values: np.ndarray) -> np.ndarray:
    return (values[:, None] != values[None, :]).astype(float)


def _unlike_work(times: np.ndarray) -> np.ndarray:
    """Return a matrix of the differences between cells' times beyond chance, in ns of work."""
    apart = times[:, None] - times[None, :]
    chance = 2 * (JITTER * np.maximum(times[:, None], times[None, :])) ** 2 + 2 * JITTER_NS**2
    return STEEP * np.sqrt(np.maximum(apart**2 - chance, 0.0))
