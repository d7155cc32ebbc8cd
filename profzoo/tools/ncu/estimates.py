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
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.tools.ncu.strata import STEEP, Window

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
