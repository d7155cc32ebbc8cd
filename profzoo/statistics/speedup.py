"""Estimates how much faster one side of a comparison is than the other, and whether that is more than chance.

The statistical unit is the process. Steps of one process share its memory layout, its clock rates and its time of day,
so their spread says nothing about the next process. Each process counts once, by the logarithm of its median step. It
also counts by its rank, so that a single disturbed process does not hide what all others show (docs/how/comparison.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profzoo.statistics import rank_tests as ranks

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"


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
        by_size, by_ranks = compare_pairs(one, other), ranks.paired_shift(other - one, confidence)
    elif places is None:
        by_size, by_ranks = compare_welch(one, other), ranks.two_sample_shift(one, other, confidence)
    else:
        by_size = [compare_neighbours(one, other, *places)]
        by_ranks = ranks.two_sample_shift(*ranks.confidence_level(one, other, *places), confidence, levelled=True)
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


def _probability(by_size: Sequence["Size"], by_ranks: ranks.Test, shift: float, sign: int) -> float:
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


def _confidence_interval(by_size: Sequence["Size"], by_ranks: ranks.Test, confidence: float) -> tuple[float, float]:
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
