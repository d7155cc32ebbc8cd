"""What a window's launches tell of each other: cells of launches alike, how unlike cells are, and who stands for whom.

Nothing says that two launches do the same work but that they are of one launch configuration and take like times, as in
Sieve (Naderan-Tahan et al., ISPASS 2023) and STEM+ROOT (Chung et al., MICRO 2025). DRAM bytes also depend on what L2
holds, which the launches before tell. A cell holds launches alike in all that. What is profiled of a cell stands for
it, and for those cells of its configuration of which nothing is and that are most like it: they are one stratum.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Launches take like times where the longest takes so many times as long as the shortest, and so many ns more. What came
# before is told apart by less like times, so that chance makes no two histories of one.
LIKE, MORE_NS = 1.1, 300.0
LIKE_BEFORE, MORE_BEFORE_NS = 1.3, 1000.0
# What one and the same launch takes varies by, of its time and in ns. Where times differ by more, work may differ by so
# many times as much, as part of the time is the launch itself.
JITTER, JITTER_NS, STEEP = 0.005, 100.0, 2.0
# The spread of DRAM bytes, in parts of what a launch moves in MOVED_NS, more than L2 holds, or in its time: of launches
# alike, and more where the range or the last, the last two, four or twelve launches differ.
MOVED_NS, ALIKE, OTHER_RANGE = 40_000.0, 0.03, 0.5
BEFORE: Mapping[int, float] = {1: 0.17, 2: 0.05, 4: 0.05, 12: 0.15}
# The spread of work that time does not tell.
UNSEEN = 0.02
# A configuration with more cells is told by shorter histories.
MOST_CELLS = 100


class Window:
    """The launches of a window, in cells.

    launches: the census. cells: of each launch. sizes, times: launches of each cell and their mean ns. configurations:
    of each cell. parts: the cells of each configuration. work, traffic: by configuration, a matrix of how unlike its
    cells are in work, in ns, and in DRAM bytes, in ns of traffic. totals: what work and traffic of all launches come
    to, in ns.
    """

    def __init__(self, census: pd.DataFrame) -> None:
        """census: every launch in order, with KEYS, `range` and time."""
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
        # The shortest launch does next to nothing.
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
        """The cell of a configuration, by place among its `parts`, that stands for each; None where none is profiled.

        samples: launches profiled of each of its cells.
        """
        there = np.flatnonzero(samples)
        if not len(there):
            return None
        apart = self.apart(configuration)[:, there]
        by = there[np.argmin(apart, axis=1)]
        by[there] = there
        return by

    def apart(self, configuration: int) -> np.ndarray:
        """How unlike the cells of a configuration are in all, squared, in parts of the totals."""
        work, traffic = self.work[configuration], self.traffic[configuration]
        return (work / self.totals[0]) ** 2 + (traffic / self.totals[1]) ** 2


def group_like_times(times: np.ndarray, groups: np.ndarray, ratio: float, more_ns: float) -> np.ndarray:
    """A number for each set of launches of a group whose times are alike: the longest, by the shortest.

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
    """A number for each sequence of so many launches before a launch; before the first were the last of a like step.

    >>> number_histories(np.array([5, 7, 5, 7]), 1).tolist()
    [1, 0, 1, 0]
    """
    before = np.stack([np.roll(numbers, back) for back in range(1, depth + 1)], axis=1)
    return np.unique(before, axis=0, return_inverse=True)[1].reshape(-1)


def _number_groups(configurations: np.ndarray, alike: np.ndarray, before: Mapping[int, np.ndarray]) -> np.ndarray:
    """The cell of each launch: of one configuration, range and like times, after the same launches as far as told."""
    depths = sorted(BEFORE, reverse=True)
    cells = _numbered(alike, before[depths[0]])
    for depth in [*depths[1:], 0]:
        many = np.bincount(configurations, _firsts(cells))[configurations] > MOST_CELLS
        coarser = _numbered(alike, before[depth]) if depth else alike
        cells = _numbered(np.where(many, coarser, cells.max() + 1 + cells), many)
    return cells


def _firsts(numbers: np.ndarray) -> np.ndarray:
    """1 at the first of each number, 0 elsewhere."""
    marks = np.zeros(len(numbers))
    marks[np.unique(numbers, return_index=True)[1]] = 1
    return marks


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """A number for each combination of values."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _differ(values: np.ndarray) -> np.ndarray:
    return (values[:, None] != values[None, :]).astype(float)


def _unlike_work(times: np.ndarray) -> np.ndarray:
    """What times of cells differ by beyond chance, in ns of work."""
    apart = times[:, None] - times[None, :]
    chance = 2 * (JITTER * np.maximum(times[:, None], times[None, :])) ** 2 + 2 * JITTER_NS**2
    return STEEP * np.sqrt(np.maximum(apart**2 - chance, 0.0))
