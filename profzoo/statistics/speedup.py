"""How much faster one side of a comparison is than the other, and whether that is more than chance.

The unit is the process: steps of one process share its memory layout, its clocks and its place in time, so that their
own spread says nothing of how the next process will be. Each process counts once, by the logarithm of its median step;
and by its rank, so that one that something disturbs does not hide what all others show (docs/compare.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profzoo.statistics import rank_tests as ranks

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"


@dataclass(frozen=True)
class Ratio:
    """The candidate's time over the baseline's: below 1 the candidate is faster.

    low, high: the interval that holds the truth with the confidence asked for. p_different: probability of a ratio as
    far from 1 where there is none. p_equivalent: of one as close to 1 where the truth is at the margin (two one-sided
    tests, Schuirmann 1987).
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
        baseline, candidate: ns, a process each, positive. At least two of each.
        places: of either side's processes among all that ran one after the other, so that a drift is told apart; None
            where they did not, which are taken as two samples with variances of their own (Welch 1947).
        confidence: of the interval.
        margin: how far from 1 the ratio may be and still count as no difference, such as 0.02.
        paired: whether each process of the baseline worked by shifts with that of the candidate in its place here, so
            that what the machine did in that time is part of both.

    Raises:
        ValueError: there are too few processes.
    """
    one, other = np.log(np.asarray(baseline, dtype=float)), np.log(np.asarray(candidate, dtype=float))
    if min(len(one), len(other)) < 2:
        raise ValueError("two processes a side are needed at the least to tell a difference from chance")
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
    """One-sided probability of so little (sign 1) or so much (-1), if the candidate took as much longer as `shift`.

    By ranks, which hold whatever processes are distributed like. Where all of them agree, and they can say no more, the
    size of the difference says how sure that is; of too few processes for ranks to be rare, both have to.
    """
    ranked, sized = by_ranks.p(shift, sign), min(size.p(shift, sign) for size in by_size)
    agree = by_ranks.above < shift if sign > 0 else by_ranks.below > shift
    if by_ranks.ends is None:
        return sized if agree else max(ranked, sized)
    return min(ranked, sized) if agree else ranked


def _confidence_interval(by_size: Sequence["Size"], by_ranks: ranks.Test, confidence: float) -> tuple[float, float]:
    """Return the shifts at which neither one-sided `_probability` is too small."""
    if by_ranks.ends is not None:
        return by_ranks.ends
    ends = [size.interval(confidence) for size in by_size]
    return min(by_ranks.below, max(end[0] for end in ends)), max(by_ranks.above, min(end[1] for end in ends))


@dataclass(frozen=True)
class Size:
    """The difference of the sides by its size, its standard error, and the degrees of freedom of that."""

    middle: float
    error: float
    freedom: float

    def p(self, shift: float, sign: int) -> float:
        """One-sided probability of so little (sign 1) or so much (-1), if the truth is `shift` (Student 1908)."""
        # Here and below, as it takes long, and most who tabulate and report compare nothing.
        from scipy import special  # type: ignore[import-untyped]

        return float(special.stdtr(self.freedom, sign * (self.middle - shift) / self._error()))

    def interval(self, confidence: float) -> tuple[float, float]:
        """What holds the truth with this confidence."""
        from scipy import special

        half = float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self._error()
        return self.middle - half, self.middle + half

    def _error(self) -> float:
        # Of a clock that ticks in nanoseconds, which equal times cannot be more exact than.
        return max(self.error, 1e-9)


def compare_neighbours(one: np.ndarray, other: np.ndarray, places: Sequence[int], others: Sequence[int]) -> Size:
    """The difference of the sides, its standard error and the degrees of freedom of that, by differences of neighbours.

    What a process and the next differ by is the step of a drift, the difference of their sides, and chance. Chance is
    known by all such differences (von Neumann 1941), not alone by those between sides; a drift that bends is so slow
    that neighbours hardly have it. Degrees of freedom by Satterthwaite (1946), as neighbours share a process.
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
    """The same of pairs, of which each has the same moments of the machine (Student 1908).

    From five on also without the least and the largest of them (Tukey and McLaughlin 1963).
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
    """The same of two samples."""
    parts = np.array([side.var(ddof=1) / len(side) for side in (one, other)])
    spread = (parts**2 / (np.array([len(one), len(other)]) - 1)).sum()
    freedom = float(parts.sum() ** 2 / spread) if spread else float(len(one) + len(other) - 2)
    return [Size(float(other.mean() - one.mean()), float(np.sqrt(parts.sum())), freedom)]


def decide_outcomes(found: Sequence[Ratio], rate: float = 0.05) -> list[str]:
    """What to say of each comparison of a zoo: faster, slower, equivalent or undecided.

    Of all that are called equivalent, and of all that are called different, at most this share is wrong in the mean
    (false discovery rate, Benjamini and Hochberg 1995). What is equivalent within the margin is so, even where it is
    surely not the same.
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
