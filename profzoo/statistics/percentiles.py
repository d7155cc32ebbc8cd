"""Estimates percentiles of step times with confidence intervals that assume no distribution.

Of n independent times, the number below a percentile follows a binomial distribution whatever the times are. So two
order statistics (the l-th and the u-th shortest time) enclose the percentile with a known probability (David and
Nagaraja, Order Statistics, 2003, 7.1).

Steps are not independent. Steps of one process share its clocks and memory, and neighbouring steps are alike. The
interval is therefore that of as many independent steps as the measured ones are worth (Woodruff, Confidence intervals
for medians and other position measures, 1952; Korn and Graubard, Confidence intervals for proportions with small
expected number of positive counts, 1998). That number follows from how much the share of steps below the percentile
varies from group to group. Groups are the processes, or consecutive blocks of the window of a single process. The
interval of a single process says nothing about other processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
# Blocks of a single process's window: at least so many steps each, and from fewest to most of them. Blocks must be much
# longer than the time for which neighbouring steps are alike.
BLOCK_STEPS, FEWEST_BLOCKS, MOST_BLOCKS = 100, 5, 10
# How many times as many steps lie beyond the quantiles at which it is asked how alike the steps of a group are.
WIDER = (1, 2)


@dataclass(frozen=True)
class Percentile:
    """A percentile of step times, in ns.

    Attributes:
        percent: such as 99.
        ns, low_ns, high_ns: the estimate and its 95 % confidence interval; all NaN if there is no interval.
        independent_steps: how many independent steps the measured ones are worth for this percentile.
        needed_steps: how many steps an interval needs, if further ones are as alike as these; 0 if there is one.
    """

    percent: float
    ns: float
    low_ns: float
    high_ns: float
    independent_steps: float
    needed_steps: int


def estimate_percentile(processes: Sequence[np.ndarray], percent: float) -> Percentile:
    """Estimate a percentile of the times of steps over several processes, or of a single one.

    processes: times in ns of the steps in steady state, one array per process in order of time, each with at least one
    step. percent: above 0 and below 100.

    Of 1000 independent steps of 1 to 1000 ns, the 99th percentile is between the 983rd and the 997th shortest:

    >>> steps = np.random.default_rng(1).permutation(np.arange(1.0, 1001.0))
    >>> ranks_of_interval(1000, 0.99), round(estimate_percentile([steps], 99).ns)
    ((983, 997), 990)
    """
    share = percent / 100
    times = np.sort(np.concatenate(processes))
    worth = count_independent(_groups(processes), times, share)
    known = ranks_of_interval(math.floor(worth), share)
    if known is None:
        least = least_steps(percent)
        needed = math.ceil(least * len(times) / worth) if worth >= 1 else least
        return Percentile(percent, math.nan, math.nan, math.nan, worth, max(needed, least, len(times) + 1))
    scale = (len(times) + 1) / (math.floor(worth) + 1)
    low = times[max(math.floor(known[0] * scale), 1) - 1]
    high = times[min(math.ceil(known[1] * scale), len(times)) - 1]
    return Percentile(percent, float(np.quantile(times, share)), float(low), float(high), worth, 0)


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
    of them by chance. The result is lowered further because few groups tell a variance badly: by the ratio of
    Student's t for all steps and for the groups.

    groups: times in ns, at least one per group. times: all of them.
    """
    if len(groups) < 2:
        return 0.0
    # Imported here, because it takes long and most importers only read results.
    from scipy import special  # type: ignore[import-untyped]

    total, count = len(times), len(groups)
    # Steps are never taken for more than there are.
    beyond = min(share, 1 - share)
    asked = {min(beyond * wider, max(beyond, 0.5)) for wider in WIDER}
    worth = min(total, *(_count_for(groups, times, one if share < 0.5 else 1 - one) for one in asked))
    spread = special.stdtrit(total - 1, 1 - TAIL) / special.stdtrit(count - 1, 1 - TAIL)
    return float(worth * min(spread, 1.0) ** 2)


def _count_for(groups: Sequence[np.ndarray], times: np.ndarray, share: float) -> float:
    """Return how many independent steps have as large a variance of the share of steps below a quantile."""
    quantile = np.quantile(times, share)
    below = np.array([(group <= quantile).sum() for group in groups], dtype=float)
    sizes = np.array([len(group) for group in groups], dtype=float)
    total, count = sizes.sum(), len(groups)
    reached = below.sum() / total
    variance = count / (count - 1) * ((below - reached * sizes) ** 2).sum() / total**2
    return float(share * (1 - share) / variance) if variance else math.inf


def _groups(processes: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Return the processes; of a single one, consecutive blocks of its window."""
    if len(processes) > 1:
        return processes
    (steps,) = processes
    blocks = min(max(len(steps) // BLOCK_STEPS, FEWEST_BLOCKS), MOST_BLOCKS, len(steps))
    return np.array_split(steps, blocks)


def _binomial_quantile(probability: float, count: int, share: float) -> int:
    """Return the smallest number that as many of `count` trials exceed with at most 1 - `probability`."""
    from scipy import special

    low, high = -1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if special.bdtr(middle, count, share) >= probability else (middle, high)
    return high
