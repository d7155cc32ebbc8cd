"""Estimates how much faster one side of a comparison is than the other, and whether that is more than chance.

The statistical unit is the process. Steps of one process share its memory layout, its clock rates and its time of day,
so their spread says nothing about the next process. Each process counts once, by the logarithm of its median step. It
also counts by its rank, so that a single disturbed process does not hide what all others show (docs/guides/faster.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

# Exact rank tests of a shift between two sides; single outliers hardly change their results.
#
# All numbers are logarithms of times. Ranks hold only which of two values is larger. A process that takes 30 % longer
# therefore counts as much as one that takes 3 % longer. If both sides have the same distribution, the probabilities are
# exact for any distribution.

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


FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"
# Said of an outcome whose interval excludes 1 by less than HARDLY of its width, in logarithms: for the estimate of a
# normal quantity, a probability of 0.03 to 0.05 under no difference. Another run may end otherwise.
NOT_SETTLED, HARDLY = "not settled", 0.05


@dataclass(frozen=True)
class Ratio:
    """Ratio of two sides' times with its confidence interval and two probabilities.

    Attributes:
        ratio: the candidate's time over the reference side's; below 1 the candidate is faster.
        low, high: confidence interval of the ratio.
        p_different: probability of a ratio at least as far from 1 as observed, if the true ratio is 1.
        p_equivalent: probability of a ratio at least as close to 1 as observed, if the true ratio is at the margin (two
            one-sided tests, Schuirmann 1987).
    """

    ratio: float
    low: float
    high: float
    p_different: float
    p_equivalent: float


def estimate_ratio(
    baseline: Sequence[float],
    candidate: Sequence[float],
    places: tuple[Sequence[int], Sequence[int]] | None,
    confidence: float = 0.95,
    margin: float = 0.02,
    paired: bool = False,
) -> Ratio:
    """Compare the processes of two sides.

    Args:
        baseline, candidate: median step in ns of each process of the reference side and of the candidate; positive, at
            least two of each.
        places: position of each side's processes in the order in which all ran one after the other; the machine's drift
            is then separated. None if they did not run so; both sides then have a variance of their own (Welch 1947).
        confidence: confidence of the interval, 0 to 1.
        margin: largest relative difference that counts as equivalent, such as 0.02.
        paired: the i-th processes of both sides ran in alternation, so that the machine affected both alike.

    Raises:
        ValueError: there are too few processes.
    """
    one, other = np.log(np.asarray(baseline, dtype=float)), np.log(np.asarray(candidate, dtype=float))
    if min(len(one), len(other)) < 2:
        raise ValueError("at least two processes per side are needed to tell a difference from chance")
    if paired:
        by_size, by_ranks = compare_pairs(one, other), paired_shift(other - one, confidence)
    elif places is None:
        by_size, by_ranks = compare_welch(one, other), two_sample_shift(one, other, confidence)
    else:
        by_size = [compare_neighbours(one, other, *places)]
        by_ranks = two_sample_shift(*confidence_level(one, other, *places), confidence, levelled=True)
    low, high = _confidence_interval(by_size, by_ranks, confidence)
    bound = float(np.log1p(margin))
    chances = {(shift, sign): _probability(by_size, by_ranks, shift, sign)
               for shift, sign in ((0.0, 1), (0.0, -1), (bound, 1), (-bound, -1))}  # fmt: skip
    return Ratio(
        ratio=float(np.exp(by_ranks.middle)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        p_different=min(2 * min(chances[0.0, 1], chances[0.0, -1]), 1.0),
        p_equivalent=max(chances[bound, 1], chances[-bound, -1]),
    )


def _probability(by_size: Sequence["Size"], by_ranks: Test, shift: float, sign: int) -> float:
    """Return the one-sided probability of a shift at most (sign 1) or at least (-1) as observed, if it is `shift`.

    The rank test counts, because it holds for any distribution. If all differences lie on one side of the shift, ranks
    cannot be more extreme, and the size of the difference may lower the probability. With too few processes for a rank
    test, the size alone decides if all differences agree; otherwise the larger probability counts.
    """
    ranked, sized = by_ranks.p(shift, sign), min(size.p(shift, sign) for size in by_size)
    agree = by_ranks.above < shift if sign > 0 else by_ranks.below > shift
    if by_ranks.ends is None:
        return sized if agree else max(ranked, sized)
    return min(ranked, sized) if agree else ranked


def _confidence_interval(by_size: Sequence["Size"], by_ranks: Test, confidence: float) -> tuple[float, float]:
    """Return the interval of shifts for which neither one-sided probability is too small; logarithms."""
    if by_ranks.ends is not None:
        return by_ranks.ends
    ends = [size.interval(confidence) for size in by_size]
    return min(by_ranks.below, max(end[0] for end in ends)), max(by_ranks.above, min(end[1] for end in ends))


@dataclass(frozen=True)
class Size:
    """The mean difference of the sides (a logarithm), its standard error, and the error's degrees of freedom."""

    middle: float
    error: float
    freedom: float

    def p(self, shift: float, sign: int) -> float:
        """Return the probability of at most (sign 1) or at least (-1) this difference, if it is `shift` (Student 1908).

        Both are logarithms.
        """
        # Imported here and below, because it takes long and most tables and reports contain no comparison.
        from scipy import special  # type: ignore[import-untyped]

        return float(special.stdtr(self.freedom, sign * (self.middle - shift) / self._error()))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the confidence interval of the difference, as logarithms; confidence: 0 to 1."""
        from scipy import special

        half = float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self._error()
        return self.middle - half, self.middle + half

    def _error(self) -> float:
        # The clock ticks in nanoseconds, so equal times are no more exact than that.
        return max(self.error, 1e-9)


def compare_neighbours(one: np.ndarray, other: np.ndarray, places: Sequence[int], others: Sequence[int]) -> Size:
    """Estimate the difference of the sides from the differences of processes that ran next to each other.

    Two neighbours differ by the machine's drift, by the difference of their sides, and by chance. The variance of
    chance is estimated from all neighbours (von Neumann 1941), including neighbours of one side. A drift that changes
    its slope does so too slowly to matter between neighbours. The degrees of freedom follow Satterthwaite (1946),
    because two neighbouring differences share a process.

    Args:
        one, other: logarithms of times, one value per process.
        places, others: position of each process of either side in the order in which all ran.
    """
    order = np.argsort([*places, *others])
    step = np.diff(np.sort([*places, *others]).astype(float))
    neighbours = np.diff(np.eye(len(order)), axis=0)
    causes = np.column_stack([step, neighbours @ np.repeat([0.0, 1.0], [len(one), len(other)])[order]])
    effects = np.linalg.pinv(causes)
    weights = effects[1] @ neighbours
    rest = neighbours.T @ (np.eye(len(step)) - causes @ effects) @ neighbours
    times, squares = np.concatenate([one, other])[order], float(np.trace(rest))
    times = times - times.mean()
    variance = max(float(times @ rest @ times), 0.0) / squares
    return Size(
        float(weights @ times),
        float(np.sqrt(variance * (weights @ weights))),
        squares**2 / float(np.trace(rest @ rest)),
    )


def compare_pairs(one: np.ndarray, other: np.ndarray) -> list[Size]:
    """Estimate the difference from pairs of processes that ran at the same time (paired t, Student 1908).

    With five pairs or more, a second estimate leaves out the least and the largest difference (trimmed mean, Tukey and
    McLaughlin 1963). one, other: logarithms of times, one value per pair.
    """
    between = np.sort(other - one)
    count = len(between)
    found = [Size(float(between.mean()), float(between.std(ddof=1) / np.sqrt(count)), float(count - 1))]
    if count >= 5:
        drawn_in = np.clip(between, between[1], between[-2]).std(ddof=1)
        left = count - 2
        found.append(Size(float(between[1:-1].mean()), float(drawn_in * np.sqrt(count) / left), float(left - 1)))
    return found


def compare_welch(one: np.ndarray, other: np.ndarray) -> list[Size]:
    """Estimate the difference of two independent samples with unequal variances (Welch 1947); logarithms of times."""
    parts = np.array([side.var(ddof=1) / len(side) for side in (one, other)])
    spread = (parts**2 / (np.array([len(one), len(other)]) - 1)).sum()
    freedom = float(parts.sum() ** 2 / spread) if spread else float(len(one) + len(other) - 2)
    return [Size(float(other.mean() - one.mean()), float(np.sqrt(parts.sum())), freedom)]


def is_settled(low: float, high: float) -> bool:
    """Whether 1 lies clearly outside of the interval of a ratio; also True without an interval, and with 1 inside.

    >>> is_settled(1.004, 2.16), is_settled(1.2, 2.16), is_settled(0.46, 0.996), is_settled(0.9, 1.1)
    (False, True, False, True)
    """
    beyond = max(math.log(low), -math.log(high)) if low > 0 else math.nan
    return not 0 < beyond < HARDLY * math.log(high / low)


def describe_outcome(outcome: str, low: float, high: float) -> str:
    """Return the outcome of a comparison in words; low, high: interval of the ratio or of the gain.

    >>> describe_outcome(FASTER, 1.004, 2.16), describe_outcome(FASTER, 1.2, 2.16)
    ('faster, not settled', 'faster')
    """
    return f"{outcome}, {NOT_SETTLED}" if outcome in (FASTER, SLOWER) and not is_settled(low, high) else outcome


def decide_outcomes(found: Sequence[Ratio], rate: float = 0.05) -> list[str]:
    """Return the outcome of each comparison of a zoo: faster, slower, equivalent or undecided.

    On average at most the share `rate` of the comparisons that are called different is wrong, and the same holds for
    those called equivalent (false discovery rate, Benjamini and Hochberg 1995). A comparison that is both different and
    within the margin is called equivalent.
    """
    if not found:
        return []
    from scipy import stats

    different = stats.false_discovery_control([one.p_different for one in found]) <= rate
    equivalent = stats.false_discovery_control([one.p_equivalent for one in found]) <= rate
    return [
        EQUIVALENT if same else (SLOWER if one.ratio > 1 else FASTER) if unlike else UNDECIDED
        for one, unlike, same in zip(found, different, equivalent, strict=True)
    ]
