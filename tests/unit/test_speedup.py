"""Comparisons of processes: known answers, no more false alarms than promised, differences found."""

import math

import numpy as np
import pytest
from scipy import stats

from profzoo.compare.sides import interleave
from profzoo.statistics import speedup
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED, Ratio, Size
from tests import processes as simulated
from tests import slow
from tests.benchmarks import compare_power


def processes(seed: int, count: int, step_ns: float = 1e7, apart: float = 0.005, drift: float = 0.0) -> np.ndarray:
    """Medians of processes that run one after the other: their own spread, and a drift over all of them."""
    random = np.random.default_rng(seed)
    return step_ns * np.exp(random.normal(0, apart, count) + drift * np.arange(count) / count)


def sides(given: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[list[int], list[int]]]:
    """What of processes in their order is of the baseline, what of the candidate, and the places of both."""
    order = np.array(interleave(["a", "b"], len(given) // 2, "2"))
    one, other = np.flatnonzero(order == "a"), np.flatnonzero(order == "b")
    return given[one], given[other], (one.tolist(), other.tolist())


def test_a_ratio_of_processes_that_ran_apart_is_the_median_of_all_differences() -> None:
    """Six a side that do not overlap: 1, 2, 4, 7, 12 and 19 of 924 orders are at most 2.5 %, 30 are more."""
    one, other = processes(1, 6), processes(2, 6, 1.1e7)
    found = speedup.estimate_ratio(one, other, places=None)
    quotients = np.sort(np.divide.outer(other, one).ravel())
    assert (found.low, found.high) == pytest.approx((quotients[5], quotients[-6]))
    assert found.ratio == pytest.approx(np.sqrt(quotients[17] * quotients[18]), rel=1e-6)
    # No rank can tell more than 2 of 924, so that the size of the difference does (Welch's t).
    expected = stats.ttest_ind(np.log(other), np.log(one), equal_var=False)
    assert found.p_different == pytest.approx(expected.pvalue) and expected.pvalue < 2 / 924


@pytest.mark.parametrize("counts", [(5, 5), (4, 9), (10, 10)])
def test_probabilities_of_samples_that_overlap_are_those_of_mann_and_whitney(counts: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    for shift in (0.0, 0.001, -0.002):
        one, other = (np.exp(random.normal(0, 0.005, count)) for count in counts)
        other = other * (1 + shift)
        expected = stats.mannwhitneyu(one, other, method="exact").pvalue
        assert speedup.estimate_ratio(one, other, places=None).p_different == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("places", [None, "in turn"])
def test_one_process_that_is_far_off_counts_as_one(places: str | None) -> None:
    """Five a side that are 3 % apart, one of the slower ones 1.3 times or 1000 times as slow: the same p, 1 % it is not."""
    order = np.array(interleave(["a", "b"], 5, "2"))
    at = (np.flatnonzero(order == "a"), np.flatnonzero(order == "b")) if places else None
    one = 1e7 * np.array([1.0, 1.001, 0.999, 1.002, 0.998])
    found = [speedup.estimate_ratio(one, 1.03 * one * [1, 1, far, 1, 1], at) for far in (1.3, 1000.0)]
    assert all(each.low > 1.02 and each.ratio == pytest.approx(1.03, abs=0.004) for each in found)
    assert found[0].p_different == found[1].p_different < 0.05


def test_three_pairs_that_happen_to_differ_alike_are_no_proof() -> None:
    """Medians, in ms, of six processes of one cell on an H200, of which pairs say that the second side is 4 % faster."""
    one, other, places = sides(np.array([64.27, 61.18, 60.90, 63.67, 52.71, 50.46]))
    assert stats.ttest_rel(np.log(other), np.log(one)).pvalue < 0.002
    assert speedup.estimate_ratio(one, other, places).p_different > 0.2


def test_moments_of_the_machine_are_no_part_of_what_worked_by_shifts() -> None:
    moments, own = processes(1, 8, 1e7, 0.05), processes(2, 16, 1.0, 0.002)
    one, other = moments * own[:8], 1.03 * moments * own[8:]
    found = speedup.estimate_ratio(one, other, sides(np.arange(16.0))[2], paired=True)
    assert 1.025 < found.low < 1.03 < found.high < 1.035
    # All eight say so: 1 of 256, or less where the size tells more.
    assert found.p_different <= min(2 / 256, stats.ttest_rel(np.log(other), np.log(one)).pvalue)
    assert speedup.decide_outcomes([found]) == [SLOWER]
    assert speedup.decide_outcomes([speedup.estimate_ratio(one, other, None)]) == [UNDECIDED]


def test_five_pairs_are_told_by_size_where_all_agree() -> None:
    """1 of 32 twice is more than 5 %: ranks alone would never do. Differences 1 to 5 %: t = 3 / 0.7071 of 4 degrees."""
    found = speedup.estimate_ratio(np.ones(5), np.exp([0.01, 0.02, 0.03, 0.04, 0.05]), None, paired=True)
    assert found.p_different == pytest.approx(2 * stats.t.sf(3 / 0.70710678, 4))
    # Half of the interval is 0.01963 by t, and 0.03207 without the ends; from 1 to 5 % is more than the first.
    assert (found.ratio, found.low, found.high) == pytest.approx(np.exp([0.03, 0.01, 0.05]), rel=1e-6)
    wide = speedup.estimate_ratio(np.ones(5), np.exp([0.01, 0.02, 0.03, 0.04, 0.04]), None, paired=True)
    assert (wide.low, wide.high) == pytest.approx(np.exp([0.01, 0.028 + 2.776445 * 0.0058310]), rel=1e-5)
    # One that is far off: t has nothing to say then, what is without the ends has. One that disagrees: never.
    for between, told in (([0.029, 0.03, 0.031, 0.032, 0.30], True), ([-0.001, 0.03, 0.03, 0.03, 0.03], False)):
        found = speedup.estimate_ratio(np.ones(5), np.exp(between), None, paired=True)
        assert (found.p_different < 0.05) == told


def test_two_one_sided_tests_are_an_interval_within_the_margin() -> None:
    for seed in range(20):
        found = speedup.estimate_ratio(*sides(processes(seed, 8, apart=0.008)), confidence=0.90, margin=0.02)
        within = found.low > 1 / 1.02 and found.high < 1.02
        assert (found.p_equivalent < 0.05) == within


def test_equal_processes_are_equivalent_and_one_process_is_refused() -> None:
    found = speedup.estimate_ratio(*sides(np.full(6, 1e7)))
    assert found.ratio == 1 and speedup.decide_outcomes([found]) == [EQUIVALENT] and speedup.decide_outcomes([]) == []
    with pytest.raises(ValueError, match="two processes per side"):
        speedup.estimate_ratio([1e7], [1e7, 1e7], places=None)


@pytest.mark.parametrize("kind", slow.only(simulated.KINDS, "drifting"))
@pytest.mark.parametrize(("count", "draws"), slow.first([(5, 150), (5, 600), (10, 600)]))
def test_nominal_error_rates_hold_for_all_kinds_of_processes(kind: str, count: int, draws: int) -> None:
    """5 % and three standard errors of the draws; tests/benchmarks/compare_power draws more, and of more counts."""
    most = 0.05 + 3 * (0.05 * 0.95 / draws) ** 0.5
    for shifts in (False, True):
        different, equivalent, _ = compare_power.rates(kind, count, draws, speedup.estimate_ratio, shifts)
        assert different <= most and equivalent <= most


def of_size(given: Size) -> tuple[float, float, float]:
    return given.middle, given.error, given.freedom


def test_two_samples_by_their_size() -> None:
    """Variances of 2 in 2 and 4 in 3: 1 and 4/3, of 1 and 2 degrees: (7/3)**2 / (1/1 + (16/9)/2) is 49/17."""
    (found,) = speedup.compare_welch(np.array([0.0, 2]), np.array([5.0, 7, 9]))
    assert of_size(found) == pytest.approx((6, math.sqrt(7 / 3), 49 / 17))
    (alike,) = speedup.compare_welch(np.array([1.0, 1]), np.array([3.0, 3, 3]))
    assert of_size(alike) == (2, 0, 3)


def test_pairs_by_their_size() -> None:
    """Of 1 2 3 6 the squares are 4 + 1 + 0 + 9, of three degrees, in four pairs."""
    (found,) = speedup.compare_pairs(np.zeros(4), np.array([3.0, 1, 6, 2]))
    assert of_size(found) == pytest.approx((3, math.sqrt(14 / 3 / 4), 3))
    # Of 1 2 3 4 10 the variance is 50/4. Drawn in they are 2 2 3 4 4, of variance 1, and three are left.
    whole, left = speedup.compare_pairs(np.array([1.0, 1, 1, 1, 1]), np.array([4.0, 2, 11, 3, 5]))
    assert of_size(whole) == pytest.approx((4, math.sqrt(2.5), 4))
    assert of_size(left) == pytest.approx((3, math.sqrt(5) / 3, 2))


@pytest.mark.parametrize(
    ("places", "others", "error"),
    [
        # Neighbours differ by drift, side and chance: what is left is -a + 3 b - 3 b' + a' = -5, of squares 20.
        ((0, 3), (1, 2), 5 / math.sqrt(20)),
        # Twice as far apart in the middle: -a + 2 b - 2 b' + a' = -3, of squares 10.
        ((0, 4), (1, 3), 3 / math.sqrt(10)),
    ],
)
def test_neighbours_by_their_size(places: tuple[int, int], others: tuple[int, int], error: float) -> None:
    """Baseline 0 and 1 about candidates of 10 and 12: (10 + 12 - 0 - 1) / 2, of one degree in either case."""
    found = speedup.compare_neighbours(np.array([0.0, 1]), np.array([10.0, 12]), places, others)
    assert of_size(found) == pytest.approx((10.5, error, 1))
    # In whatever order they are given.
    found = speedup.compare_neighbours(np.array([1.0, 0]), np.array([12.0, 10]), places[::-1], others[::-1])
    assert of_size(found) == pytest.approx((10.5, error, 1))


def test_chances_and_intervals_of_one_degree_of_freedom() -> None:
    """Student's t of one degree is Cauchy's: one error from the middle are a quarter, and the middle half within it."""
    size = Size(5.0, 2.0, 1.0)
    assert [size.p(shift, sign) for shift, sign in ((3, 1), (3, -1), (7, 1), (5, 1))] == pytest.approx(
        [0.75, 0.25, 0.25, 0.5]
    )
    assert size.interval(0.5) == pytest.approx((3, 7))
    assert Size(5.0, 0.0, 1.0).interval(0.5) == (5 - 1e-9, 5 + 1e-9)


def ranked(p: float, ends: tuple[float, float] | None = None) -> speedup.Test:
    """All differences are between 1 and 3, with that chance of any shift."""
    return speedup.Test(2.0, 1.0, 3.0, ends, lambda shift, sign: p)


@pytest.mark.parametrize(
    ("p", "ends", "shift", "sign", "right"),
    [
        # The size says a quarter at one error from the middle. Ranks that say more give way where all agree.
        (0.4, (1.0, 3.0), 3.5, 1, 0.25),
        (0.1, (1.0, 3.0), 3.5, 1, 0.1),
        # One is as large as the shift: all do not agree.
        (0.4, (1.0, 3.0), 3.0, 1, 0.4),
        (0.4, (1.0, 3.0), 1.0, -1, 0.4),
        (0.4, (1.0, 3.0), 0.5, -1, 0.25),
        # Of too few for ranks to be rare both have to say so, but where all agree.
        (0.1, None, 3.5, 1, 0.25),
        (0.4, None, 3.5, 1, 0.25),
        (0.4, None, 3.0, 1, 0.4),
        (0.1, None, 3.0, 1, 0.25),
    ],
)
def test_whether_ranks_or_size_tell(
    p: float, ends: tuple[float, float] | None, shift: float, sign: int, right: float
) -> None:
    sizes = [Size(shift - sign * 2.0, 2.0, 1.0), Size(shift, 2.0, 1.0)]
    assert speedup._probability(sizes, ranked(p, ends), shift, sign) == pytest.approx(right)


def test_intervals_of_few_processes_hold_all_differences() -> None:
    """Middle halves of 3 to 7 and 1.5 to 2.5: from 3 to 2.5, and out to 1 and 3, where differences are."""
    sizes = [Size(5.0, 2.0, 1.0), Size(2.0, 0.5, 1.0)]
    assert speedup._confidence_interval(sizes, ranked(0.1), 0.5) == (1, 3)
    assert speedup._confidence_interval([Size(2.0, 4.0, 1.0)], ranked(0.1), 0.5) == pytest.approx((-2, 6))
    assert speedup._confidence_interval(sizes, ranked(0.1, (1.5, 2.25)), 0.5) == (1.5, 2.25)


def test_a_ratio_of_four_processes_of_each_side() -> None:
    """Candidates take e, e**2, e**3 and e**4 times as long as four that take one: the ends are those, the middle e**2.5.

    One of 70 orders is as extreme, which is a deviate beyond; by size 2.5 and an error of sqrt(5/3/4), of 3 degrees.
    """
    found = speedup.estimate_ratio([1.0] * 4, np.exp([1.0, 2, 3, 4]), None)
    assert (found.ratio, found.low, found.high) == pytest.approx((math.exp(2.5), math.e, math.exp(4)))
    # Of three degrees the chance beyond t is 1/2 - (t/sqrt(3) / (1 + t*t/3) + atan(t/sqrt(3))) / pi; t is 3.873.
    x = 2.5 / math.sqrt(5 / 12) / math.sqrt(3)
    one_sided = 0.5 - (x / (1 + x * x) + math.atan(x)) / math.pi
    assert found.p_different == pytest.approx(min(2 * one_sided, 2 / 70))
    # Far above the margin: no chance of being as close.
    assert found.p_equivalent > 0.98
    assert speedup.estimate_ratio([1.0, 1.0], [1.0, 1.0], None).p_different == 1


def test_verdicts_hold_up_to_the_rate_and_by_the_margin() -> None:
    """Of one comparison each probability is held against 5 % itself; of two the larger one is as it is."""

    def said(ratio: float, different: float, equivalent: float) -> list[str]:
        return speedup.decide_outcomes([Ratio(ratio, 0, 9, different, equivalent)])

    assert said(1.1, 0.05, 1.0) == [SLOWER] and said(0.9, 0.05, 1.0) == [FASTER]
    assert said(0.9, 0.051, 1.0) == [UNDECIDED] and said(0.99, 0.01, 0.05) == [EQUIVALENT]
    assert said(0.99, 1.0, 0.051) == [UNDECIDED] and speedup.decide_outcomes([]) == []
    # Of two chances of 3 and 60 % the smaller counts twice.
    pair = [Ratio(1.1, 0, 9, 0.03, 1.0), Ratio(1.1, 0, 9, 0.6, 1.0)]
    assert speedup.decide_outcomes(pair) == [UNDECIDED, UNDECIDED] and speedup.decide_outcomes(pair[:1]) == [SLOWER]


def test_ends_of_the_interval_of_pairs() -> None:
    """Of ten pairs ranks of at most 6 are rare (23 of 1,024). Beyond 2 the three below have ranks 1, 3 and 5."""
    assert speedup.paired_shift(np.arange(10.0), 0.95).ends == (2, 7)
    # Of five pairs all of one sign are one in 32, which is rare enough for 15 of 16, and the next one is not.
    assert speedup.paired_shift(np.array([1.0, 2, 4, 8, 16]), 1 - 2 / 32).ends == (1, 16)
    assert speedup.paired_shift(np.array([1.0, 2, 4, 8, 16]), 1 - 2 / 33).ends is None


def test_few_samples_levelled_keep_what_is_no_rare_thing() -> None:
    """Of 2 and 2, one order of six has no larger one, two at most one, four at most two: beyond a half none changes."""
    one, other = np.array([0.0, 1.0]), np.array([2.0, 3.0])
    assert speedup.two_sample_p(one, other, 2, levelled=True) == pytest.approx(4 / 6)
    # A sixth is a deviate of -0.96742, times the root of 2 in 3 -0.78990, which is 21.48 %.
    assert speedup.two_sample_p(one, other, 4, levelled=True) == pytest.approx(0.21480, abs=2e-5)


def test_each_process_that_is_equal_counts_as_half() -> None:
    """Of three and three alike three pairs are larger and three equal: four and a half, no fewer than five.

    Of the 20 orders 1, 1, 2, 3, 3 and 3 have from none to five larger ones.
    """
    three = np.arange(3.0)
    assert speedup.two_sample_p(three, three, 0) == pytest.approx(13 / 20)
