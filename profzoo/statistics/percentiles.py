"""Selects the steps of a window that count, and estimates percentiles of their times with confidence intervals.

Steps of one process share its clocks and memory, so however many there are, they say nothing about another process. The
process is therefore the unit. Each process has its own percentile, that of the steps of its window. The estimate is the
median of these, and two of them enclose the median of all such processes with a probability that is known whatever
the times are, because the number of processes below their median follows a binomial distribution (David and Nagaraja,
Order Statistics, 2003, 7.1). Six processes give 95 %. With three to five, the shortest and the longest one have the
confidence that is stated beside them; two have none.

The interval of a single process is of this process alone. Of n independent times, two order statistics enclose the
percentile likewise. But neighbouring steps are alike, so the interval is that of as many independent steps as the
measured ones are worth (Woodruff, Confidence intervals for medians and other position measures, 1952; Korn and
Graubard, Confidence intervals for proportions with small expected number of positive counts, 1998). That number follows
from how much the share of steps below the percentile varies between consecutive blocks of the window. A few blocks may
be alike by chance, so the variance is taken to be as large as they leave it possible.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Selects the steps of a window that count: the steps in steady state.

# Fewest steps from which their variance can be estimated.
LEAST = 5


def drop_warmup(times: np.ndarray, first_only: bool = False) -> np.ndarray:
    """Return the steps in steady state: without the first step, and without further steps of a warm-up.

    The marginal standard error rule (MSER; White 1997) decides how many steps to drop, at most half of them. Without a
    trend it drops few. At least LEAST steps stay, because fewer may be alike by chance.

    times: step times in ns, shape (steps,), in order. first_only: drop the first step alone, of windows in which other
    programs come and go, as that looks like a trend.

    >>> drop_warmup(np.array([900.0, 300.0, 150.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0]))
    array([100., 101.,  99., 100., 100., 101.])
    """
    rest = times[1:] if len(times) > 1 else times
    if first_only:
        return rest
    cuts = range(max(min(len(rest) // 2, len(rest) - LEAST), 0) + 1)
    errors = [float(rest[cut:].var()) / (len(rest) - cut) for cut in cuts]
    return rest[int(np.argmin(errors)) :]


CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
# With fewer processes, chance decides: of two, the median of all is between them in half of the cases.
FEWEST_PROCESSES = 3
# Blocks of a single process's window: at least so many steps each, and from fewest to most of them. Blocks must be much
# longer than the time for which neighbouring steps are alike.
BLOCK_STEPS, FEWEST_BLOCKS, MOST_BLOCKS = 100, 5, 10
# How many times as many steps lie beyond the quantiles at which it is asked how alike the steps of a group are.
WIDER = (1, 2)
# How often so many blocks differ by chance even less than it is allowed for.
BY_CHANCE = 0.2


@dataclass(frozen=True)
class Percentile:
    """A percentile of step times, in ns.

    Attributes:
        percent: such as 99.
        ns, low_ns, high_ns: the estimate and its confidence interval; all NaN if there is no interval.
        confidence: how often such an interval holds, 0 to 1; NaN without one.
        independent_steps: how many independent values the measured steps are worth: of several processes, their number.
        needed_steps: how many steps an interval needs, if further ones are as alike as these; 0 if there is one.
    """

    percent: float
    ns: float
    low_ns: float
    high_ns: float
    confidence: float
    independent_steps: float
    needed_steps: int


def estimate_percentile(processes: Sequence[np.ndarray], percent: float) -> Percentile:
    """Estimate a percentile of the times of steps: of the median process, or of a single one.

    processes: times in ns of the steps in steady state, one array per process in order of time, each with at least one
    step. percent: above 0 and below 100.

    Of 5000 independent steps of 1 to 5000 ns, the 99th percentile is the 4950th shortest:

    >>> steps = np.random.default_rng(1).permutation(np.arange(1.0, 5001.0))
    >>> found = estimate_percentile([steps], 99)
    >>> round(found.ns), found.low_ns < 4940 < 4960 < found.high_ns
    (4950, True)

    Of six processes, the shortest and the longest enclose the median in all cases but two of 64:

    >>> found = estimate_percentile([np.full(6, float(ns)) for ns in range(6)], 50)
    >>> found.ns, found.low_ns, found.high_ns, found.confidence
    (2.5, 0.0, 5.0, 0.96875)
    """
    return _of_processes(processes, percent) if len(processes) > 1 else _of_one(processes[0], percent)


def _of_processes(processes: Sequence[np.ndarray], percent: float) -> Percentile:
    """Estimate the percentile of the median process; each needs as many steps as independent ones would need."""
    count, least, fewest = len(processes), least_steps(percent), min(map(len, processes))
    if count < FEWEST_PROCESSES or fewest < least:
        needed = max(count, FEWEST_PROCESSES) * max(least, fewest)
        return Percentile(percent, math.nan, math.nan, math.nan, math.nan, float(count), needed)
    own = np.sort([np.quantile(steps, percent / 100) for steps in processes])
    low, high = ranks_of_interval(count, 0.5) or (1, count)
    confidence = _binomial(high - 1, count, 0.5) - _binomial(low - 1, count, 0.5)
    ends = float(own[low - 1]), float(own[high - 1])
    return Percentile(percent, float(np.median(own)), *ends, confidence, float(count), 0)


def _of_one(steps: np.ndarray, percent: float) -> Percentile:
    share, times = percent / 100, np.sort(steps)
    blocks = _blocks(steps)
    worth = count_independent(blocks, times, share)
    known = ranks_of_interval(math.floor(worth), share)
    if known is None:
        least = least_steps(percent)
        needed = math.ceil(least * len(times) / worth) if worth >= 1 else least
        missing = math.nan, math.nan, math.nan, math.nan
        return Percentile(percent, *missing, worth, max(needed, least, len(times) + 1))
    scale = (len(times) + 1) / (math.floor(worth) + 1)
    low = times[max(math.floor(known[0] * scale), 1) - 1]
    high = times[min(math.ceil(known[1] * scale), len(times)) - 1]
    return Percentile(percent, float(np.quantile(times, share)), float(low), float(high), CONFIDENCE, worth, 0)


def least_steps(percent: float) -> int:
    """Return how many independent steps an interval of a percentile needs at the least.

    >>> [least_steps(percent) for percent in (50, 90, 95, 99, 99.9)]
    [6, 36, 72, 368, 3688]
    """
    rarer = max(percent, 100 - percent) / 100
    return math.ceil(math.log(TAIL) / math.log(rarer))


def ranks_of_interval(steps: int, share: float) -> tuple[int, int] | None:
    """Return the ranks, from 1, of the times that enclose the quantile `share` of independent steps.

    Each end misses the quantile with a probability of at most TAIL. None if there are too few steps for that.

    >>> ranks_of_interval(5, 0.5), ranks_of_interval(6, 0.5), ranks_of_interval(367, 0.99), ranks_of_interval(368, 0.99)
    (None, (1, 6), None, (360, 368))
    """
    low, high = _binomial_quantile(TAIL, steps, share), _binomial_quantile(1 - TAIL, steps, share) + 1
    return (low, high) if low >= 1 and high <= steps else None


def count_independent(groups: Sequence[np.ndarray], times: np.ndarray, share: float) -> float:
    """Return how many independent steps the steps of several groups are worth for the quantile `share`; at least 0.

    The variance of the share of steps below a quantile follows from the groups. The worst of the quantile itself and of
    a less rare one counts (WIDER), because few steps are beyond a rare quantile, and the groups may have alike numbers
    of them by chance. The result is lowered further because few groups tell a variance badly: the variance is the
    largest that is found to be so small once in 1 / BY_CHANCE (by the distribution of chi squared).

    groups: times in ns, at least one per group. times: all of them.
    """
    if len(groups) < 2:
        return 0.0
    total = len(times)
    # Steps are never taken for more than there are.
    beyond = min(share, 1 - share)
    asked = {min(beyond * wider, max(beyond, 0.5)) for wider in WIDER}
    worth = min(total, *(_count_for(groups, times, one if share < 0.5 else 1 - one) for one in asked))
    return float(worth * _least_variance(len(groups)))


def _count_for(groups: Sequence[np.ndarray], times: np.ndarray, share: float) -> float:
    """Return how many independent steps have as large a variance of the share of steps below a quantile."""
    quantile = np.quantile(times, share)
    below = np.array([(group <= quantile).sum() for group in groups], dtype=float)
    sizes = np.array([len(group) for group in groups], dtype=float)
    total, count = sizes.sum(), len(groups)
    reached = below.sum() / total
    variance = count / (count - 1) * ((below - reached * sizes) ** 2).sum() / total**2
    return float(share * (1 - share) / variance) if variance else math.inf


def _blocks(steps: np.ndarray) -> Sequence[np.ndarray]:
    """Return consecutive blocks of a window."""
    blocks = min(max(len(steps) // BLOCK_STEPS, FEWEST_BLOCKS), MOST_BLOCKS, len(steps))
    return np.array_split(steps, blocks)


def _least_variance(groups: int) -> float:
    """Return the part of its true value that a variance of so many groups is below once in 1 / BY_CHANCE."""
    # Imported here and below, because it takes long and most importers only read results.
    from scipy import special  # type: ignore[import-untyped]

    return float(special.chdtri(groups - 1, 1 - BY_CHANCE) / (groups - 1))


def _binomial(most: int, count: int, share: float) -> float:
    """Return the probability that at most so many of `count` trials succeed."""
    from scipy import special

    return float(special.bdtr(most, count, share)) if most >= 0 else 0.0


def _binomial_quantile(probability: float, count: int, share: float) -> int:
    """Return the smallest number that as many of `count` trials exceed with at most 1 - `probability`."""
    from scipy import special

    low, high = -1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if special.bdtr(middle, count, share) >= probability else (middle, high)
    return high
