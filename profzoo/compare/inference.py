"""How much faster one side of a comparison is than the other, and whether that is more than chance.

The unit is the process: steps of one process share its memory layout, its clocks and its place in time, so that their
own spread says nothing of how the next process will be. Each process counts once, by the logarithm of its median step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def ratio(
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
    # Here and below, as it takes half a second, and most who tabulate and report compare nothing.
    from scipy import stats  # type: ignore[import-untyped]

    one, other = np.log(np.asarray(baseline, dtype=float)), np.log(np.asarray(candidate, dtype=float))
    if min(len(one), len(other)) < 2:
        raise ValueError("two processes a side are needed at the least to tell a difference from chance")
    if paired:
        middle, error, freedom = _paired(one, other)
    else:
        middle, error, freedom = _apart(one, other) if places is None else _in_turn(one, other, *places)
    # Of a clock that ticks in nanoseconds, which equal times cannot be more exact than.
    error = max(error, 1e-9)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    bound = float(np.log1p(margin))
    nearest = min(middle + bound, bound - middle)
    return Ratio(
        ratio=float(np.exp(middle)),
        low=float(np.exp(middle - half)),
        high=float(np.exp(middle + half)),
        p_different=float(2 * stats.t.sf(abs(middle) / error, freedom)),
        p_equivalent=float(stats.t.sf(nearest / error, freedom)),
    )


def _in_turn(
    one: np.ndarray, other: np.ndarray, places: Sequence[int], others: Sequence[int]
) -> tuple[float, float, float]:
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
    return (
        float(weights @ times),
        float(np.sqrt(variance * (weights @ weights))),
        squares**2 / float(np.trace(rest @ rest)),
    )


def _paired(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The same of pairs, of which each has the same moments of the machine (Student 1908)."""
    between = other - one
    return float(between.mean()), float(between.std(ddof=1) / np.sqrt(len(between))), float(len(between) - 1)


def _apart(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The same of two samples."""
    parts = np.array([side.var(ddof=1) / len(side) for side in (one, other)])
    spread = (parts**2 / (np.array([len(one), len(other)]) - 1)).sum()
    freedom = float(parts.sum() ** 2 / spread) if spread else float(len(one) + len(other) - 2)
    return float(other.mean() - one.mean()), float(np.sqrt(parts.sum())), freedom


def verdicts(found: Sequence[Ratio], rate: float = 0.05) -> list[str]:
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
