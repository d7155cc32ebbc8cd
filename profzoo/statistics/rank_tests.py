"""Exact rank tests of a shift between two sides; single outliers hardly change their results.

All numbers are logarithms of times. Ranks hold only which of two values is larger. A process that takes 30 % longer
therefore counts as much as one that takes 3 % longer. If both sides have the same distribution, the probabilities are
exact for any distribution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

# Rounding error allowed when probabilities, which are quotients of whole numbers, are compared.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Test:
    """Result of a rank test: how much longer the candidate takes, as a logarithm.

    Attributes:
        middle: estimate of the shift.
        below, above: least and largest difference between the sides; beyond them ranks cannot be more extreme.
        ends: confidence interval of the shift; None if there are too few processes for the confidence.
        p: function of a shift and a sign. It returns the one-sided probability of ranks at least as low (sign 1) or as
            high (sign -1) as observed, if the true shift is the given one.
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

    Slopes between processes of different sides are left out, because they contain the difference of the sides.

    Args:
        one, other: logarithms of times, one value per process.
        places, others: position of each process of either side in the order in which all ran.

    Returns: both sides without the drift.
    """
    mine, theirs = np.asarray(places, dtype=float), np.asarray(others, dtype=float)
    slopes = []
    for values, at in ((one, mine), (other, theirs)):
        first, second = np.triu_indices(len(values), 1)
        slopes.append((values[second] - values[first]) / (at[second] - at[first]))
    slope = float(np.median(np.concatenate(slopes)))
    return one - slope * mine, other - slope * theirs


def two_sample_shift(one: np.ndarray, other: np.ndarray, confidence: float, levelled: bool = False) -> Test:
    """Estimate the shift between two samples: the median of all differences and its interval (Hodges and Lehmann 1963).

    Args:
        one, other: logarithms of times, one value per process.
        confidence: confidence of the interval, 0 to 1.
        levelled: whether the machine's drift was removed from both.
    """
    apart = np.sort(np.subtract.outer(other, one).ravel())
    chances = _larger(len(one), len(other), levelled)
    outside = int((chances <= (1 - confidence) / 2 + ROUNDING).sum())
    ends = (float(apart[outside - 1]), float(apart[-outside])) if outside else None

    def p(shift: float, sign: int) -> float:
        return two_sample_p(sign * one, sign * other, sign * shift, levelled)

    return Test(float(np.median(apart)), float(apart[0]), float(apart[-1]), ends, p)


def two_sample_p(one: np.ndarray, other: np.ndarray, shift: float, levelled: bool = False) -> float:
    """Return the probability of ranks of the candidate at most as high as observed, if the true shift is `shift`.

    This is the U test of Mann and Whitney (1947); equal processes count as half. one, other: logarithms of times;
    levelled: whether the machine's drift was removed from both.
    """
    apart = np.subtract.outer(other, one) - shift
    above = int(np.ceil((apart > 0).sum() + (apart == 0).sum() / 2))
    return float(_larger(len(one), len(other), levelled)[above])


@cache
def _larger(first: int, second: int, levelled: bool = False) -> np.ndarray:
    """Return the distribution of U for samples of equal distribution: P(U <= u) for u from 0 to first * second.

    U is the number of pairs in which the value of the second sample is larger. The distribution follows from the number
    of orders of both samples, adding one process at a time.

    levelled: the machine's drift was removed from both. This costs one degree of freedom and draws processes closer
    together than chance does, so the normal deviates of the probabilities are reduced by the same factor.
    """
    ways = {(0, many): np.ones(1) for many in range(second + 1)} | {(few, 0): np.ones(1) for few in range(first + 1)}
    for few in range(1, first + 1):
        for many in range(1, second + 1):
            found = np.zeros(few * many + 1)
            # The largest value is in the second sample, and exceeds all of the first; or it is in the first sample.
            found[few:] += ways[few, many - 1]
            found[: (few - 1) * many + 1] += ways[few - 1, many]
            ways[few, many] = found
    chances = np.cumsum(ways[first, second]) / ways[first, second].sum()
    if levelled:
        normal, less = NormalDist(), np.sqrt(1 - 1 / (first + second - 1))
        chances = np.array([normal.cdf(normal.inv_cdf(one) * less) if one < 0.5 else one for one in chances])
    return chances


def paired_shift(between: np.ndarray, confidence: float) -> Test:
    """Estimate a shift from differences of pairs: the median of pairwise means, and its interval by paired_p.

    between: logarithm of the candidate's over the reference side's time, one value per pair; confidence: 0 to 1.
    """
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
    """Return the lower end of the interval: the least mean above which the one-sided probability exceeds `limit`."""
    # Ranks change only if the shift passes the mean of two differences, and the probability rises with the shift.
    first, last = 0, len(means) - 1
    while first < last:
        place = (first + last) // 2
        if paired_p(-between, -(means[place] + means[place + 1]) / 2) > limit + ROUNDING:
            last = place
        else:
            first = place + 1
    return float(means[first])


def paired_p(between: np.ndarray, shift: float) -> float:
    """Return the probability of differences at most as high as observed, if the true shift is `shift`.

    This is the signed-rank test of Wilcoxon (1945), but ranks above the middle one count as the middle one. With full
    ranks, two outlying pairs of ten outweigh the others, and more pairs would detect less.

    between: logarithm of the candidate's over the reference side's time, one value per pair.
    """
    left = between - shift
    cap = max(len(left) // 2, 1)
    order = np.argsort(np.argsort(np.abs(left), kind="stable"), kind="stable") + 1
    counted = np.minimum(order, cap)
    # A pair without a difference counts against the hypothesis that is tested.
    return float(_signed(len(left))[int(counted[left >= 0].sum())])


@cache
def _signed(count: int) -> np.ndarray:
    """Return the distribution of the sum of positive pairs' ranks, if signs are random: P(sum <= s) for s from 0."""
    ways = np.ones(1)
    for rank in np.minimum(np.arange(1, count + 1), max(count // 2, 1)):
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    return np.cumsum(ways) / ways.sum()
