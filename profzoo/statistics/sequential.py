"""Decides after each round whether a candidate is faster, slower or equivalent, with the error of all looks together.

Processes of a round run next to each other, so each round gives one number: the logarithm of the candidate's over the
reference side's time. A look is a test of the rounds so far. Testing again after each round would find a difference by
chance sooner or later. Therefore each look has a share of the total error (SHARES), which decides at what confidence
its interval is computed. The intervals of all looks contain the true ratio together with the stated confidence
(repeated confidence intervals, Jennison and Turnbull 1989; the shares add up to 1, by Bonferroni's inequality). A
candidate is decided once its interval lies on one side of 1, or within the margin of equivalence.

One or two rounds say little about their own spread. Therefore they are also tested with the spread that is known from
other processes, which has the weight of a few rounds (moderated t, Smyth 2004). A gain far beyond it is decided by one
round. These two looks have their shares over cells whose spreads vary as much as that weight says, not in each cell.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED, Ratio, Size

ERROR = 0.05
# Numbers of rounds at which a look is taken, and their shares of the error. Early looks have most of it, because
# processes cost time and most settings differ by more than chance; later looks are alike, so there are fewer.
LOOKS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
SHARES = (0.05, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.04, 0.06, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01)
# Looks with the spread that is known from other processes, and their shares. A cell's processes may be farther apart
# than these; such a look is then wrong more often than its share allows. Its share is therefore small: all looks
# together keep the error where rounds are up to three times as far apart as ASSUMED, and not beyond.
EARLY_LOOKS, EARLY_SHARES = (1, 2), (0.06, 0.03)
# From so many rounds on, the least and the largest of every so many are drawn in, so that a disturbed round cannot hide
# what all others show.
TRIMMED_FROM, TRIMMED_OF = 6, 8
# From so many rounds on, their spread is known well enough to forecast how many a decision takes. The forecast is a
# rough one, so a decision may be given up only from more rounds on, among which one may be disturbed, and only if half
# of the spread would not do either.
FORECAST_FROM, GIVEN_UP_FROM, OPTIMISM = 3, TRIMMED_FROM, 0.5


@dataclass(frozen=True)
class Spread:
    """Spread of rounds that is known from other processes.

    Attributes:
        deviation: standard deviation of the logarithm that a round gives.
        freedom: weight in degrees of freedom.
        processes: number of processes that it was measured of; 0 if it is assumed.
    """

    deviation: float
    freedom: float
    processes: int = 0


# Spread of the recorded processes of `unrepeated` (verdicts/scores.yaml). Spreads of two cells differ, so what other
# cells showed has this weight at most.
ASSUMED = Spread(0.108, 3.0)


def learn_spread(own: Sequence[float], others: Sequence[Sequence[float]]) -> Spread:
    """Return the spread of a cell's rounds by processes that were timed before.

    Args:
        own: logarithms of the median steps of the cell's processes, one per process.
        others: the same of other cells of the machine.

    >>> learn_spread([], []) == ASSUMED
    True
    >>> found = learn_spread([0.0, 0.01, 0.02], [[0.0, 0.02]] * 6)
    >>> round(found.deviation, 4), found.freedom, found.processes
    (0.0507, 5.0, 15)
    """
    variance = _pool(ASSUMED.deviation**2, ASSUMED.freedom, others)
    own_freedom = max(len(own) - 1, 0)
    deviation = float(np.sqrt(_pool(variance, ASSUMED.freedom, [own])))
    measured = sum(len(one) for one in (own, *others) if len(one) > 1)
    return Spread(deviation, ASSUMED.freedom + own_freedom, measured)


def _pool(variance: float, freedom: float, cells: Sequence[Sequence[float]]) -> float:
    """Return the mean variance of a round, by degrees of freedom; a round has two processes of the cell's spread."""
    known = [(2 * float(np.var(one, ddof=1)), len(one) - 1) for one in cells if len(one) > 1]
    sums = variance * freedom + sum(own * weight for own, weight in known)
    return sums / (freedom + sum(weight for _, weight in known))


@dataclass(frozen=True)
class Decision:
    """Result of the rounds so far.

    Attributes:
        outcome: faster, slower, equivalent or undecided.
        found: ratio with the interval and the probabilities of all looks; None without a round.
        rounds: number of rounds.
        missing: estimate of further rounds that a decision takes: 0 if decided, None if unknown or beyond all looks.
        hopeful: the same with a smaller spread, by which a decision may be given up.
    """

    outcome: str
    found: Ratio | None
    rounds: int
    missing: int | None
    hopeful: int | None


def decide(
    between: Sequence[float], margin: float, error: float = ERROR, comparisons: int = 1, known: Spread = ASSUMED
) -> Decision:
    """Decide between two sides.

    Args:
        between: logarithm of the candidate's over the reference side's time, one value per round, in order.
        margin: largest relative difference that counts as equivalent, such as 0.02.
        error: largest probability of a wrong decision at any look, and 1 less the confidence of the interval.
        comparisons: number of comparisons of which none may be called different wrongly with a larger probability.
        known: spread of rounds that is known from other processes.

    >>> decide([-0.99], 0.02).outcome, decide([0.001, -0.001, 0.002], 0.02).outcome
    ('faster', 'equivalent')
    >>> decide([0.03, -0.01, 0.02], 0.02).outcome
    'undecided'
    """
    values = np.asarray(between, dtype=float)
    if not len(values):
        return Decision(UNDECIDED, None, 0, None, None)
    found = _estimate(values, float(np.log1p(margin)), error, known)
    outcome = UNDECIDED
    if found.p_equivalent <= error:
        outcome = EQUIVALENT
    elif found.p_different <= error / comparisons and not found.low <= 1 <= found.high:
        # Later rounds that contradict an earlier look leave it open.
        outcome = FASTER if found.high < 1 else SLOWER
    if outcome != UNDECIDED:
        return Decision(outcome, found, len(values), 0, 0)
    missing, hopeful = (_missing(values, margin, (error / comparisons, error), part) for part in (1.0, OPTIMISM))
    return Decision(outcome, found, len(values), missing, hopeful)


def _estimate(values: np.ndarray, bound: float, error: float, known: Spread) -> Ratio:
    """Return the ratio, with the interval and the probabilities of all looks together; bound: margin as a logarithm."""
    low, high = -np.inf, np.inf
    least = dict.fromkeys(((0.0, 1), (0.0, -1), (bound, 1), (-bound, -1)), 1.0)
    for size, share in _looks(values, known):
        ends = size.interval(1 - error * share)
        # If intervals of two looks have nothing in common, one is wrong; a decision was made by the first of them.
        if max(low, ends[0]) <= min(high, ends[1]):
            low, high = max(low, ends[0]), min(high, ends[1])
        least = {test: min(chance, 2 * size.p(*test) / share) for test, chance in least.items()}
    middle = (estimate_size(values) if len(values) > 1 else _moderate(values, known)).middle
    # Rounds that differ from all before them may move the mean out of what earlier looks left. The interval is widened
    # to it, which keeps the confidence.
    return Ratio(
        ratio=float(np.exp(middle)),
        low=float(np.exp(min(low, middle))),
        high=float(np.exp(max(high, middle))),
        p_different=min(least[0.0, 1], least[0.0, -1]),
        p_equivalent=max(least[bound, 1], least[-bound, -1]),
    )


def is_precise(logarithms: Sequence[float], margin: float) -> bool:
    """Return whether the mean of processes is known to the margin: at any look, its interval is no wider to each side.

    logarithms: of the times of a step, one per process. margin: relative, such as 0.02.
    """
    values = np.asarray(logarithms, dtype=float)
    looks = ((estimate_size(values[:at]), share) for at, share in _given_looks(len(values)))
    return any(np.diff(size.interval(1 - ERROR * share)) / 2 <= np.log1p(margin) for size, share in looks)


def estimate_size(between: np.ndarray) -> Size:
    """Estimate the mean by Student's t, from TRIMMED_FROM values on by a trimmed mean (Tukey and McLaughlin 1963)."""
    count = len(between)
    if count < TRIMMED_FROM:
        return Size(float(between.mean()), float(between.std(ddof=1) / np.sqrt(count)), float(count - 1))
    ordered, cut = np.sort(between), max(count // TRIMMED_OF, 1)
    left = count - 2 * cut
    drawn_in = np.clip(ordered, ordered[cut], ordered[-cut - 1]).std(ddof=1)
    return Size(float(ordered[cut:-cut].mean()), float(drawn_in * np.sqrt(count) / left), float(left - 1))


def _moderate(between: np.ndarray, known: Spread) -> Size:
    """Estimate the mean by Student's t with the values' own spread and the known one."""
    count = len(between)
    freedom = known.freedom + count - 1
    squares = known.freedom * known.deviation**2 + count * float(between.var())
    return Size(float(between.mean()), float(np.sqrt(squares / freedom / count)), freedom)


def _looks(values: np.ndarray, known: Spread) -> Iterator[tuple[Size, float]]:
    """Yield what each look so far estimates, and its share of the error."""
    for count, share in zip(EARLY_LOOKS, EARLY_SHARES, strict=True):
        if count <= len(values):
            yield _moderate(values[:count], known), share
    for count, share in _given_looks(len(values)):
        yield estimate_size(values[:count]), share


def _given_looks(count: int) -> Iterator[tuple[int, float]]:
    return ((at, share) for at, share in zip(LOOKS, SHARES, strict=True) if at <= count)


def _missing(values: np.ndarray, margin: float, errors: tuple[float, float], part: float) -> int | None:
    """Return how many more rounds of this mean and `part` of this spread a decision takes; None if beyond all looks.

    errors: of `different` and of `equivalent`.
    """
    if len(values) < FORECAST_FROM:
        return None
    size = estimate_size(values)
    spread, middle = part * size.error * np.sqrt(len(values)), abs(size.middle)
    for count, share in zip(LOOKS, SHARES, strict=True):
        apart, within = (_quantile(count, error * share) * spread / np.sqrt(count) for error in errors)
        if count > len(values) and (apart < middle or within < np.log1p(margin) - middle):
            return count - len(values)
    return None


@cache
def _quantile(count: int, error: float) -> float:
    """Return half the width of a look's interval, in standard errors."""
    cut = max(count // TRIMMED_OF, 1) if count >= TRIMMED_FROM else 0
    return Size(0.0, 1.0, float(count - 2 * cut - 1)).interval(1 - error)[1]


# Levels of the tests of a session. What is tried next depends on earlier answers, and nobody knows how many tests there
# will be. By alpha spending, the k-th test has a share of the error that depends on k alone, and all shares add up to 1
# at most (Foster and Stine 2008; online control of the family-wise error rate, Tian and Ramdas 2021). A test measures
# anew, so the union bound holds for any strategy, whenever a session ends. Rules of the false discovery rate (LORD++,
# SAFFRON, ADDIS) would let a session buy later luck by gains that it plants; their bound is for fixed times, and their
# levels depend on outcomes, so that two processes could not test at once. Rounds grow with the logarithm of a level, so
# the price is small (tests/benchmarks/referee_sessions.py has LORD++ in numbers).
# Nothing is known of the spread of a test's rounds before the first: this spread is larger than any that programs have.
# The spread of other processes bounds the error over many programs, and an outlier of one would decide in one round.
UNKNOWN = Spread(3.0, 3.0)
# Half of the error is for the first so many tests. Levels of these differ by a factor of four at most; later ones fall
# with the square of the number.
HALF = 50


def count_comparisons(number: int, half: int = HALF) -> int:
    """Return by what the error is divided for a test of a session, to which decide is given it.

    The reciprocals h / ((k + h - 1) (k + h)), where h is `half`, add up to 1 over all k: they are differences of h / (k
    + h). Each is rounded down to the reciprocal of a whole number.

    number: of the test in its session, from 1. half: half of the error is for the first so many tests.

    >>> [count_comparisons(number) for number in (1, 2, 50, 200)]
    [51, 54, 198, 1245]
    """
    if number < 1:
        raise ValueError(f"a session's tests are numbered from 1, not {number}")
    return -(-(number + half - 1) * (number + half) // half)


def give_level(number: int, error: float = ERROR, half: int = HALF) -> float:
    """Return the largest probability with which a test of a session may call equal programs faster or slower.

    number: of the test in its session, from 1. error: the same for all tests of the session together. half: as above.

    >>> round(give_level(1), 6), round(give_level(200), 6)
    (0.00098, 4e-05)
    """
    return error / count_comparisons(number, half)
