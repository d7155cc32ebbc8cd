"""Exact rank tests: probabilities counted by hand, intervals from few numbers, drifts that are taken off."""

import numpy as np
import pytest

from profzoo.statistics import speedup as ranks


def test_orders_of_two_samples_are_counted() -> None:
    """Of 2 and 2: U is 0, 1, 2, 2, 3, 4 in the six orders. Of 5 and 5: 1, 2 and 4 of 252 have U of at most 0, 1, 2."""
    one, other = np.array([0.0, 1.0]), np.array([2.0, 3.0])
    found = [ranks.two_sample_p(one, other, shift) for shift in (0, 1.5, 2, 2.5, 4)]
    assert found == pytest.approx([1, 5 / 6, 4 / 6, 2 / 6, 1 / 6])
    # Of four differences one is none, then two are: three and a half are larger, which is no fewer than four; and two.
    assert ranks.two_sample_p(one, one + 1, 0) == 1 and ranks.two_sample_p(one, one, 0) == pytest.approx(4 / 6)
    five = np.arange(5.0)
    found = [ranks.two_sample_p(five, five - off, 0) for off in (4.5, 3.5, 2.5)]
    assert found == pytest.approx([1 / 252, 2 / 252, 7 / 252])


def test_the_interval_of_two_samples_is_of_their_differences() -> None:
    """Of 5 and 5 the third of 25 differences from either end, as 4 of 252 are at most 2.5 %, and 7 are more."""
    found = ranks.two_sample_shift(np.arange(5.0), 10 * np.arange(5.0), 0.95)
    assert (found.ends, found.middle) == ((-2, 38), 18)
    assert (found.below, found.above) == (-4, 40)
    assert (found.p(-5, 1), found.p(-5, -1)) == (1, pytest.approx(1 / 252))
    # Of 4 and 4 the ends: 1 of 70. Of 3 and 3 nothing is as rare as that: 1 of 20.
    found = ranks.two_sample_shift(np.arange(4.0), 10 * np.arange(4.0), 0.95)
    assert found.ends == (-3, 30)
    found = ranks.two_sample_shift(np.arange(3.0), 10 * np.arange(3.0), 0.95)
    assert (found.ends, found.middle) == (None, 9)
    assert ranks.two_sample_shift(np.arange(3.0), 10 * np.arange(3.0), 0.90).ends == (-2, 20)


def test_a_drift_that_was_taken_off_makes_probabilities_larger() -> None:
    """Of 4 and 4, 1 of 70 is a deviate of -2.189; times the root of 6 in 7 it is -2.027, which is 2.13 %."""
    four = np.arange(4.0)
    assert ranks.two_sample_p(four, four - 10, 0, levelled=True) == pytest.approx(0.02133, abs=2e-5)
    assert ranks.two_sample_p(four, four + 10, 0, levelled=True) == 1
    # Of 8 and 8 U is 13 in 2.49 % of orders, and 12 in 1.90 %: the one is more than 2.5 % then, the other is not.
    eight = np.arange(8.0)
    found = [(ranks.two_sample_shift(eight, 100 * eight, 0.95, only).ends or (0,))[0] for only in (False, True)]
    differences = np.sort(np.subtract.outer(100 * eight, eight).ravel())
    assert found == [differences[13], differences[12]]


def test_a_drift_is_the_median_slope_within_sides() -> None:
    places, others = np.array([0.0, 3, 4]), np.array([1.0, 2, 5])
    one, other = 0.1 * places + [0, 0, 0], 0.1 * others + 7
    flat, level = ranks.confidence_level(one, other, places, others)
    assert flat == pytest.approx([0, 0, 0]) and level == pytest.approx([7, 7, 7])
    # Slopes of 3 and 3: two of six hold the one that is far off, so that four decide.
    flat, level = ranks.confidence_level(one, other + np.array([0, 0, 50]), places, others)
    assert np.median(level - flat) == pytest.approx(7, abs=0.2)


def test_signs_of_pairs_are_counted() -> None:
    """Of ten pairs ranks count 1 to 5, and 5 from there on: 15 of 1,024 ways add up to at most 5, and 23 to at most 6."""
    ten = np.arange(1.0, 11)

    def p(*negative: int) -> float:
        return ranks.paired_p(-np.where(np.isin(ten, negative), -ten, ten), 0)

    assert [p(), p(1), p(5), p(10), p(1, 10)] == pytest.approx([number / 1024 for number in (1, 2, 15, 15, 23)])
    # A pair that does not differ speaks against: of three, each counts 1.
    assert ranks.paired_p(np.array([0.0, -1, -2]), 0) == pytest.approx(4 / 8)


def test_the_interval_of_pairs_is_of_means_of_two() -> None:
    """Of six pairs only all that agree are rarer than 2.5 % (1 of 64), so that the interval is from end to end."""
    found = ranks.paired_shift(np.array([1.0, 2, 4, 8, 16, 32]), 0.95)
    assert (found.ends, found.p(0, -1)) == ((1, 32), 1 / 64)
    # The 21 means of two, themselves among them; the eleventh is (1 + 16) / 2.
    assert found.middle == 8.5
    assert ranks.paired_shift(np.arange(5.0), 0.95).ends is None
    # Of ten, what is below the third least of means is told: 3, 5 and more ways of 1,024; by hand from p above.
    ten = ranks.paired_shift(np.arange(10.0), 0.95)
    assert ten.ends and ten.middle == 4.5 and ten.ends[0] == pytest.approx(9 - ten.ends[1])
    shifts = np.array([ten.ends[0] - 1e-6, ten.ends[0] + 1e-6])
    above = [ranks.paired_p(-np.arange(10.0), -shift) for shift in shifts]
    assert above[0] <= 0.025 < above[1]
