"""Estimates totals over all launches of a window, with intervals, from the launches that ncu profiled.

Each launch is assumed to have the same counters as the profiled launches of its stratum (strata.py). The error of this
assumption is modelled by how much the launches differ in time and in the launches before them. The model begins with a
guessed spread (generalised variance functions; Wolter, Introduction to Variance Estimation, 2007, ch. 7). Profiled
launches of one configuration then correct the guess. The guess counts as a fixed number of observations beside those of
the run and of the configuration (Smyth 2004, doi:10.2202/1544-6115.1027). Intervals use Student's t with
Satterthwaite's degrees of freedom (Cochran, Sampling Techniques, 1977, 5.4). They hold for the total that another run
would count, because the bytes of one launch vary from run to run.

In this module, the cells are the groups of similar launches that strata.py makes, not cells of the zoo.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.tools.ncu.quantities import (
    ADDITIVE,
    EIGHT_BITS,
    GPU_TIME,
    LATER,
    NUMBERS,
    OF_LAUNCH,
    QUANTITIES,
    SECTOR,
    Kind,
    Quantity,
    has_metric,
    metrics_to_ask,
)
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Derives the quantities of tables from ncu's metrics, and splits ratios into sums, from which means follow.

# Importers find all declarations of quantities here.
__all__ = [
    "ADDITIVE", "EIGHT_BITS", "GPU_TIME", "LATER", "NUMBERS", "OF_LAUNCH", "QUANTITIES", "SECTOR", "derive_quantities",
    "has_metric", "metrics_to_ask", "split_into_sums",
]  # fmt: skip


def derive_quantities(table: pd.DataFrame, known: Mapping[str, Quantity] = QUANTITIES) -> pd.DataFrame:
    """Return the quantities in a table of ncu's metrics, one column each; empty in rows that lack a metric.

    known: the quantities to derive, by name; those of the kernel tables if nothing else is given.

    Raises:
        DataError: a metric has a value that is not a number.
    """
    columns = {}
    for name, quantity in known.items():
        chosen = next((one.factors for one in quantity.sums if set(one.factors) <= set(table.columns)), None)
        if chosen is not None:
            numbers = {metric: _numbers(table[metric]) for metric in chosen}
            columns[name] = sum(
                (numbers[metric] * factor for metric, factor in chosen.items()), pd.Series(0.0, table.index)
            )
    return pd.DataFrame(columns, index=table.index)


def split_into_sums(
    table: pd.DataFrame, values: pd.DataFrame, times: pd.Series, known: Mapping[str, Quantity] = QUANTITIES
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return value times weight, and weight, of each non-additive quantity; the mean is the ratio of their sums.

    Both are 0 in rows without a value.

    Args:
        table: rows with ncu's metrics.
        values: result of derive_quantities for these rows.
        times: time of each row in ns.
        known: declarations of the quantities, as for derive_quantities.
    """
    others = {name: _weight(table, known[name], times) for name in values if known[name].kind is not Kind.SUM}
    weights = pd.DataFrame(others, index=table.index).astype("float64").where(values[list(others)].notna()).fillna(0.0)
    return (values[list(others)].fillna(0.0) * weights).astype("float64"), weights


def _weight(table: pd.DataFrame, quantity: Quantity, times: pd.Series) -> pd.Series:
    if quantity.kind is Kind.OF_LAUNCH:
        return pd.Series(1.0, table.index)
    for product in quantity.per:
        if set(product) <= {*table.columns, GPU_TIME}:
            parts = [times if name == GPU_TIME else _numbers(table[name]) for name in product]
            return pd.concat(parts, axis=1).astype("float64").prod(axis=1, skipna=False)
    return times


def _numbers(column: pd.Series) -> pd.Series:
    parsed = pd.to_numeric(column, errors="coerce")
    lost = column[parsed.isna() & column.notna()]
    if len(lost):
        raise DataError(f"{column.name} holds {lost.iloc[0]!r}, which is not a number: export the report again")
    return parsed


# Groups a window's launches into cells and strata: which profiled launches represent which others.
#
# Two launches are assumed to do the same work if they have the same launch configuration and take similar times, as in
# Sieve (Naderan-Tahan et al., ISPASS 2023) and STEM+ROOT (Chung et al., MICRO 2025). DRAM bytes also depend on the
# content of the L2 cache, and so on the launches before. In this module, a cell is a group of launches that agree in
# configuration, time, range and the launches before. A stratum is a cell with profiled launches, together with the
# cells of the same configuration that have none and are most similar to it.

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


# Half width of a 90 % interval of the normal distribution, in standard errors.
NINE_IN_TEN = 1.6449
# Number of observations that the guess counts as, against the observations of a run and of a configuration.
GUESS_OF_RUN, GUESS_OF_CONFIGURATION = 4.0, 2.0


@dataclass(frozen=True)
class Spread:
    """Guess of how much a quantity differs between two launches, relative to its own value or to a typical value.

    The typical value of a launch is its ns of traffic times the run's mean per ns of traffic.

    Attributes:
        unlike: for different times: factor of the relative difference in time.
        before, typical_before: for different launches before: factors of the difference that strata.BEFORE states, of
            the own value and of the typical one.
        chance, typical_chance: relative difference of launches that are alike, of the own value and of the typical one.
    """

    unlike: float
    before: float
    typical_before: float
    chance: float
    typical_chance: float


# Fitted to bert, unet, mobilenetv2, lstm and deeplab by tests.benchmarks.counted_truth, as the constants of strata.py.
WORK = Spread(1.2, 0.0, 0.015, 0.0025, 0.0005)
DRAM = Spread(0.9, 0.9, 0.55, 0.009, 0.018)


def guess_spread(quantity: str) -> Spread:
    """Return the guessed spread for a metric or a quantity, by its name."""
    return DRAM if quantity.startswith("dram") else WORK


class Estimates:
    """Estimates totals over all launches of a window from the profiled launches."""

    def __init__(self, window: Window, launches: np.ndarray, values: pd.DataFrame) -> None:
        """Assign every launch of the window to a stratum, and compute the strata's means.

        Args:
            window: all launches of the window, in cells.
            launches: positions of the profiled launches in the window, shape (profiled,).
            values: one row per profiled launch, one column per quantity.
        """
        self.window, self.quantities = window, list(values.columns)
        self.cell = window.cells[launches]
        self.samples = np.bincount(self.cell, minlength=len(window.sizes))
        self.stratum = np.full(len(window.sizes), -1)
        # By how much the launches of each cell differ from the profiled launches of their stratum: in time (relative),
        # and by the launches before (from strata.BEFORE).
        self.unlike, self.before = np.zeros(len(window.sizes)), np.zeros(len(window.sizes))
        for one, part in enumerate(window.parts):
            by = window.standing(one, self.samples[part])
            if by is not None:
                self._stand(one, part, by)
        self.strata = np.flatnonzero(self.samples)
        self.size = np.bincount(np.maximum(self.stratum, 0), np.where(self.stratum < 0, 0, window.sizes),
                                minlength=len(window.sizes))[self.strata]  # fmt: skip
        self.pairs = self._pairs()
        self.means = values.groupby(self.cell).mean().reindex(self.strata).to_numpy(dtype=float)
        self.moved = window.moved[self.strata]

    def weights(self) -> np.ndarray:
        """Return the multiplicity of each profiled launch: the number of launches that it stands for."""
        place = np.searchsorted(self.strata, self.cell)
        return self.size[place] / self.samples[self.cell]

    def labels(self) -> np.ndarray:
        """Return the stratum of each launch of the window, as an index into `strata`; -1 if it has none."""
        of_cell = np.where(self.stratum < 0, -1, np.searchsorted(self.strata, np.maximum(self.stratum, 0)))
        return of_cell[self.window.cells]

    def totals(self, groups: np.ndarray) -> pd.DataFrame:
        """Return the estimated totals of groups of launches, one row per group number.

        Columns: `launches`; and for each quantity its total, the total's standard error `{quantity}_se`, and the
        error's degrees of freedom `{quantity}_freedom`.

        groups: group number of each launch of the window, from 0. Launches without a stratum are not counted.
        """
        labels, count = self.labels(), int(groups.max()) + 1
        known = labels >= 0
        pairs = groups[known] * len(self.strata) + labels[known]
        found, which, launches = np.unique(pairs, return_inverse=True, return_counts=True)
        group, stratum = found // len(self.strata), found % len(self.strata)
        columns = {"launches": np.bincount(group, launches, minlength=count)}
        # The error of a group's launches follows from the mean of their own differences.
        unlike, before = (
            np.bincount(which, apart[self.window.cells[known]], minlength=len(found)) / launches
            for apart in (self.unlike, self.before)
        )
        chance = 1 / self.samples[self.strata][stratum] + 1 / launches
        for place, name in enumerate(self.quantities):
            guess, means = guess_spread(name), self.means[:, place]
            typical = self._typical(means)
            ratio, freedom = self._learned(means, typical, guess)
            off = _off(guess, means[stratum], typical[stratum], unlike, before, chance)
            mean, variance = means[stratum], off * ratio[stratum] * launches.astype(float) ** 2
            columns[name] = np.bincount(group, launches * mean, minlength=count)
            summed = np.bincount(group, variance, minlength=count)
            columns[f"{name}_se"] = np.sqrt(summed)
            squares = np.bincount(group, variance**2 / freedom[stratum], minlength=count)
            columns[f"{name}_freedom"] = np.divide(summed**2, squares, where=squares > 0, out=np.full(count, np.inf))
        return pd.DataFrame(columns)

    def sums(self, values: pd.DataFrame, groups: np.ndarray) -> pd.DataFrame:
        """Return the estimated totals of other values, one row per group number, one column per value.

        Args:
            values: one row per profiled launch.
            groups: group number of each launch of the window, from 0.
        """
        labels = self.labels()
        known = labels >= 0
        means = values.groupby(self.cell).mean().reindex(self.strata).to_numpy(dtype=float)[labels[known]]
        count = int(groups.max()) + 1
        found = {name: np.bincount(groups[known], means[:, at], count) for at, name in enumerate(values)}
        return pd.DataFrame(found, index=range(count))

    def _stand(self, configuration: int, part: np.ndarray, by: np.ndarray) -> None:
        """Assign the cells of a configuration to strata.

        Args:
            configuration: number of the configuration.
            part: the cells of the configuration.
            by: for each of them, the index in `part` of the cell whose profiled launches represent it.
        """
        window, here = self.window, np.arange(len(part))
        self.stratum[part] = part[by]
        self.unlike[part] = window.work[configuration][here, by] / (STEEP * window.times[part][by])
        self.before[part] = window.traffic[configuration][here, by] / window.moved[part][by]

    def _typical(self, means: np.ndarray) -> np.ndarray:
        """Return the typical value of each stratum, by its traffic; strata without a value are left out of the mean."""
        return np.nansum(self.size * means) / max(self.size @ self.moved, 1e-9) * self.moved

    def _pairs(self) -> pd.DataFrame:
        """Return pairs of neighbouring strata of one configuration; each pair is an observation of their difference.

        Columns: `left` and `right`, indices into `strata`; `configuration`; `unlike`, `before` and `chance` as in
        `_off`.
        """
        window, rows = self.window, []
        configurations = window.configurations[self.strata]
        order = np.argsort(configurations, kind="stable")
        for left, right in itertools.pairwise(order):
            one = int(configurations[left])
            if one != configurations[right]:
                continue
            part = window.parts[one]
            first, second = np.searchsorted(part, self.strata[[left, right]])
            unlike = window.work[one][first, second] / (STEEP * window.times[part[[first, second]]].max())
            before = window.traffic[one][first, second] / window.moved[part[[first, second]]].min()
            chance = (1 / self.samples[self.strata[[left, right]]]).sum()
            rows.append((left, right, one, unlike, before, chance))
        return pd.DataFrame(rows, columns=["left", "right", "configuration", "unlike", "before", "chance"])

    def _learned(self, means: np.ndarray, typical: np.ndarray, guess: Spread) -> tuple[np.ndarray, np.ndarray]:
        """Return per stratum the ratio of observed to guessed squared differences, and the number of observations.

        Args:
            means, typical: mean and typical value of a quantity in each stratum.
            guess: guessed spread of the quantity.
        """
        left, right = self.pairs["left"].to_numpy(dtype=int), self.pairs["right"].to_numpy(dtype=int)
        known = ~np.isnan(means[left] - means[right])
        means = np.nan_to_num(means)
        seen = (means[left] - means[right]) ** 2
        more, typically = (np.maximum(one[left], one[right]) for one in (means, typical))
        unlike, before, chance = (self.pairs[name].to_numpy(dtype=float) for name in ("unlike", "before", "chance"))
        guessed = np.maximum(_off(guess, more, typically, unlike, before, chance), 1e-300)
        weight = known * np.minimum(self.size[left], self.size[right]).astype(float) ** 2
        share = weight * guessed
        many = share.sum() ** 2 / max((share**2).sum(), 1e-300)
        of_run = (GUESS_OF_RUN + many * (weight @ seen) / max(share.sum(), 1e-300)) / (GUESS_OF_RUN + many)
        one = self.pairs["configuration"].to_numpy(dtype=int)
        own = self.window.configurations[self.strata]
        most = len(self.window.parts)
        ratios = np.bincount(one, known * seen / guessed, minlength=most)[own]
        count = GUESS_OF_CONFIGURATION + np.bincount(one, known, minlength=most)[own]
        return (GUESS_OF_CONFIGURATION * of_run + ratios) / count, count


def _off(
    guess: Spread, means: np.ndarray, typical: np.ndarray, unlike: np.ndarray, before: np.ndarray, chance: np.ndarray
) -> np.ndarray:
    """Return the expected squared differences; chance: sum of 1 / launches over both sides of the difference."""
    return (
        (guess.unlike * unlike * means) ** 2
        + (guess.before * before * means) ** 2
        + (guess.typical_before * before * typical) ** 2
        + ((guess.chance * means) ** 2 + (guess.typical_chance * typical) ** 2) * chance
    )


def interval_half_width(error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return half the width of the 90 % confidence interval, from standard errors and their degrees of freedom.

    The quantile of Student's t is computed by its expansion (Abramowitz and Stegun 1964, 26.7.5). Fewer than 2 degrees
    of freedom are treated as 2.

    >>> interval_half_width(np.array([1.0, 1.0, 1.0]), np.array([2.0, 10.0, np.inf])).round(2).tolist()
    [2.91, 1.81, 1.64]
    """
    x, more = NINE_IN_TEN, 1 / np.maximum(freedom, 2.0)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return error * (x + sum(term * more**power for power, term in enumerate(terms, 1)))
