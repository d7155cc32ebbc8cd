"""Exact rank tests of a shift between two sides, which are robust against single outliers.

All numbers are logarithms of times. Ranks know only which of two is larger, so that a process of 30 % more counts as
much as one of 3 % more. Probabilities are exact whatever processes are distributed like, if both sides are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

# Of probabilities that are quotients of whole numbers.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Test:
    """Result of a rank test: how much longer the candidate takes, as a logarithm.

    middle: the estimate of the shift. below, above: its least and largest difference; beyond them no rank can be more
    extreme. ends: the interval, where ranks can have the confidence asked for, else None. p: the one-sided probability
    of so little (sign 1) or so much (-1), if the shift is that.
    """

    middle: float
    below: float
    above: float
    ends: tuple[float, float] | None
    p: Callable[[float, int], float]


def confidence_level(
    one: np.ndarray, other: np.ndarray, places: Sequence[int], others: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Remove the machine's drift from both sides: the median slope between processes of one side (Theil 1950).

    places: where each process ran among all. Slopes between sides are left out, as they hold what sides differ by.
    """
    mine, theirs = np.asarray(places, dtype=float), np.asarray(others, dtype=float)
    slopes = []
    for values, at in ((one, mine), (other, theirs)):
        first, second = np.triu_indices(len(values), 1)
        slopes.append((values[second] - values[first]) / (at[second] - at[first]))
    slope = float(np.median(np.concatenate(slopes)))
    return one - slope * mine, other - slope * theirs


def two_sample_shift(one: np.ndarray, other: np.ndarray, confidence: float, levelled: bool = False) -> Test:
    """Two samples: the median of all differences between them, and its interval (Hodges and Lehmann 1963).

    levelled: whether a drift was taken off them.
    """
    apart = np.sort(np.subtract.outer(other, one).ravel())
    chances = _larger(len(one), len(other), levelled)
    outside = int((chances <= (1 - confidence) / 2 + ROUNDING).sum())
    ends = (float(apart[outside - 1]), float(apart[-outside])) if outside else None

    def p(shift: float, sign: int) -> float:
        return two_sample_p(sign * one, sign * other, sign * shift, levelled)

    return Test(float(np.median(apart)), float(apart[0]), float(apart[-1]), ends, p)


def two_sample_p(one: np.ndarray, other: np.ndarray, shift: float, levelled: bool = False) -> float:
    """Probability of ranks of the candidate as low as these, or lower, if it took as much longer as `shift`.

    The U test of Mann and Whitney (1947); processes that are equal count as half.
    """
    apart = np.subtract.outer(other, one) - shift
    above = int(np.ceil((apart > 0).sum() + (apart == 0).sum() / 2))
    return float(_larger(len(one), len(other), levelled)[above])


@cache
def _larger(first: int, second: int, levelled: bool = False) -> np.ndarray:
    """Probability that of all pairs of two samples that are alike at most so many have the second one larger.

    By the number of ways to put the samples in an order, a process at a time. levelled: once a drift was taken off,
    processes are less far apart than chance would have it, by a degree of freedom; deviates of probabilities are, too.
    """
    ways = {(0, many): np.ones(1) for many in range(second + 1)} | {(few, 0): np.ones(1) for few in range(first + 1)}
    for few in range(1, first + 1):
        for many in range(1, second + 1):
            found = np.zeros(few * many + 1)
            # The largest is of the second sample, and larger than all of the first; or it is of the first.
            found[few:] += ways[few, many - 1]
            found[: (few - 1) * many + 1] += ways[few - 1, many]
            ways[few, many] = found
    chances = np.cumsum(ways[first, second]) / ways[first, second].sum()
    if levelled:
        normal, less = NormalDist(), np.sqrt(1 - 1 / (first + second - 1))
        chances = np.array([normal.cdf(normal.inv_cdf(one) * less) if one < 0.5 else one for one in chances])
    return chances


def paired_shift(between: np.ndarray, confidence: float) -> Test:
    """Estimate a shift from differences of pairs: the median of pairwise means, and the interval by `paired_p`."""
    first, second = np.triu_indices(len(between))
    means = np.unique((between[first] + between[second]) / 2)
    middle, limit = float(np.median((between[first] + between[second]) / 2)), (1 - confidence) / 2
    ends = None
    if 0.5 ** len(between) <= limit + ROUNDING:
        ends = min(_end(between, means, limit), middle), max(-_end(-between, -means[::-1], limit), middle)

    def p(shift: float, sign: int) -> float:
        return paired_p(sign * between, sign * shift)

    return Test(middle, float(between.min()), float(between.max()), ends, p)


def _end(between: np.ndarray, means: np.ndarray, limit: float) -> float:
    """The lower end of the interval: the least of the means above which ranks are not as rare as `limit`."""
    # Ranks change only where the shift is the mean of two differences, and p rises with it.
    first, last = 0, len(means) - 1
    while first < last:
        place = (first + last) // 2
        if paired_p(-between, -(means[place] + means[place + 1]) / 2) > limit + ROUNDING:
            last = place
        else:
            first = place + 1
    return float(means[first])


def paired_p(between: np.ndarray, shift: float) -> float:
    """Probability of differences as low as these, or lower, if the candidate took as much longer as `shift`.

    The signed ranks of Wilcoxon (1945), of which those beyond the middle one count as much as that: by ranks as they
    are, two pairs of ten that are far off outweigh the others, and more pairs would find less.
    """
    left = between - shift
    cap = max(len(left) // 2, 1)
    order = np.argsort(np.argsort(np.abs(left), kind="stable"), kind="stable") + 1
    counted = np.minimum(order, cap)
    # A pair without a difference speaks against whatever is asked.
    return float(_signed(len(left))[int(counted[left >= 0].sum())])


@cache
def _signed(count: int) -> np.ndarray:
    """Probability that ranks of pairs with a positive difference add up to at most so much, where signs are chance."""
    ways = np.ones(1)
    for rank in np.minimum(np.arange(1, count + 1), max(count // 2, 1)):
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    return np.cumsum(ways) / ways.sum()
