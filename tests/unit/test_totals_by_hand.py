"""Totals and their intervals on a window of which each number was worked out by hand."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates, interval_half_width
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

WORK, DRAM = "smsp__inst_executed.sum", "dram__bytes_read.sum"
# Three like steps: of a two launches of 10 us and two of 30 us, of b one of 20, 60 and 70 us, one of d and one of c.
KERNELS, TIMES = "aaaabbbdc", [1e4, 1e4, 3e4, 3e4, 2e4, 6e4, 7e4, 5e4, 1.5e4]
RANGES = ["forward"] * 5 + ["backward"] * 2 + ["forward"] * 2
# What came before differs from the last launch on: by the squares of its parts.
BEFORE = 0.17**2 + 0.05**2 + 0.05**2 + 0.15**2
# Profiled: twice the first short launch of a, once the first long one, both of b but the last, and d; nothing of c.
PLACES = [0, 9, 2, 4, 5, 7]
COUNTED = [90.0, 110.0, 330.0, 50.0, 130.0, 260.0]
NOT_KNOWN = [180.0, 220.0, 300.0, np.nan, 400.0, 350.0]


def estimates() -> Estimates:
    table = pd.DataFrame({"mangled": list(KERNELS * 3), GPU_TIME: TIMES * 3, "range": RANGES * 3})
    window = Window(table.assign(**dict.fromkeys(KEYS[1:], 1)))
    return Estimates(window, np.array(PLACES), pd.DataFrame({WORK: COUNTED, DRAM: NOT_KNOWN}))


def work(longer: float, shorter: float) -> float:
    """What times differ by beyond chance, in ns."""
    return sqrt((longer - shorter) ** 2 - 2 * (0.005 * longer) ** 2 - 2 * 100.0**2)


def off(mean: float, typical: float, unlike: float, before: float, chance: float) -> float:
    """The square by which work is expected to be off."""
    return (
        (1.2 * unlike * mean) ** 2
        + (0.015 * before * typical) ** 2
        + (0.0025 * mean) ** 2 * chance
        + (0.0005 * typical) ** 2 * chance
    )


# Work of typical launches: 6 * 100 + 6 * 330 + 3 * 50 + 6 * 130 + 3 * 260 is 4,290 in 660 us of traffic, 6.5 by us.
TYPICAL = {"short": 65.0, "long": 195.0, "first": 130.0, "last": 260.0, "d": 260.0}
MEAN = {"short": 100.0, "long": 330.0, "first": 50.0, "last": 130.0, "d": 260.0}


def learned() -> dict[str, float]:
    """By how many times squares are larger than guessed, of the strata of each kernel.

    Strata of a are 230 apart, each of six launches; those of b 80, the smaller of three.
    """
    guessed_a = off(330, 195, work(3e4, 1e4) / 3e4, sqrt(BEFORE), 1 / 2 + 1)
    guessed_b = off(130, 260, work(6e4, 2e4) / 6e4, sqrt(BEFORE + 0.5**2), 1 + 1)
    part_a, part_b = 36 * guessed_a, 9 * guessed_b
    many = (part_a + part_b) ** 2 / (part_a**2 + part_b**2)
    of_run = (4 + many * (36 * 230**2 + 9 * 80**2) / (part_a + part_b)) / (4 + many)
    return {"a": (2 * of_run + 230**2 / guessed_a) / 3, "b": (2 * of_run + 80**2 / guessed_b) / 3, "d": of_run}


def test_what_each_launch_that_was_profiled_stands_for() -> None:
    """The last launch of b takes times like those of the one before it; nothing stands for c."""
    found = estimates()
    assert found.weights().tolist() == [3, 3, 6, 3, 6, 3]
    labels = found.labels().reshape(3, 9)
    assert (labels == labels[0]).all() and (labels[0] < 0).tolist() == [False] * 8 + [True]
    short, again, long, other, first, last, like, d, _ = labels[0]
    assert short == again and long == other and last == like and {short, long, first, last, d} == set(range(5))


def test_totals_of_groups_of_launches() -> None:
    """The first step, the other two, and none; of the last of these there is nothing."""
    groups = np.repeat([0, 1, 1], 9)
    found = estimates().totals(np.where(np.arange(27) % 9 == 8, 3, groups))
    assert found["launches"].tolist() == [8, 16, 0, 0]
    assert found[WORK].tolist() == [200 + 660 + 50 + 260 + 260, 2860, 0, 0]
    ratio = learned()
    for group, steps in ((0, 1), (1, 2)):
        # Of two launches of a one is off by what came before it; of b the last by its time too.
        squares = {
            "short": off(100, 65, 0, sqrt(BEFORE) / 2, 1 / 2 + 1 / (2 * steps)) * ratio["a"] * (2 * steps) ** 2,
            "long": off(330, 195, 0, sqrt(BEFORE) / 2, 1 + 1 / (2 * steps)) * ratio["a"] * (2 * steps) ** 2,
            "first": off(50, 130, 0, 0, 1 + 1 / steps) * ratio["b"] * steps**2,
            "last": off(130, 260, work(7e4, 6e4) / 6e4 / 2, sqrt(BEFORE) / 2, 1 + 1 / (2 * steps))
            * ratio["b"]
            * (2 * steps) ** 2,
            "d": off(260, 260, 0, 0, 1 + 1 / steps) * ratio["d"] * steps**2,
        }
        total = sum(squares.values())
        assert found[f"{WORK}_se"][group] == pytest.approx(sqrt(total), rel=1e-9)
        # One pair beside two observations of the guess, but for d, of which there is no pair.
        freedom = total**2 / sum(square**2 / (2 if name == "d" else 3) for name, square in squares.items())
        assert found[f"{WORK}_freedom"][group] == pytest.approx(freedom, rel=1e-9)
    assert found[f"{WORK}_se"][2] == 0 and found[f"{WORK}_freedom"][2] == np.inf


def test_what_has_no_value_somewhere_says_nothing_of_others() -> None:
    """Of the first launch of b there is no count: 6 * 200 + 6 * 300 + 6 * 400 + 3 * 350 in 660 us, and one pair, of a."""
    by_kernel = np.array(["abdc".index(kernel) for kernel in KERNELS * 3])
    found = estimates().totals(by_kernel)
    assert found[DRAM].isna().tolist() == [False, True, False, False]
    assert found.loc[[0, 2, 3], DRAM].tolist() == [3000, 1050, 0]
    by_us = 6450 / 660

    def square(mean: float, us: float, unlike: float, before: float, chance: float) -> float:
        typical = by_us * us
        guess = (0.9 * unlike * mean) ** 2 + before**2 * ((0.9 * mean) ** 2 + (0.55 * typical) ** 2)
        return guess + ((0.009 * mean) ** 2 + (0.018 * typical) ** 2) * chance

    guessed = square(300, 30, work(3e4, 1e4) / 3e4, sqrt(BEFORE), 1.5)
    of_run = (4 + 100**2 / guessed) / 5
    of_a = (2 * of_run + 100**2 / guessed) / 3
    short = 36 * square(200, 10, 0, sqrt(BEFORE) / 2, 1 / 2 + 1 / 6) * of_a
    long = 36 * square(300, 30, 0, sqrt(BEFORE) / 2, 1 + 1 / 6) * of_a
    assert found[f"{DRAM}_se"][0] == pytest.approx(sqrt(short + long), rel=1e-9)
    assert found[f"{DRAM}_se"][2] == pytest.approx(3 * sqrt(square(350, 40, 0, 0, 1 + 1 / 3) * of_run), rel=1e-9)
    assert found[f"{DRAM}_freedom"][[0, 2]].tolist() == pytest.approx(
        [(short + long) ** 2 / ((short**2 + long**2) / 3), 2]
    )


def test_sums_of_other_values_by_group() -> None:
    """Two launches alike say 1 and 6, in the mean 3.5; groups are the first step and the others."""
    values = pd.DataFrame({"one": [1.0, 6.0, 10.0, 100.0, 1000.0, 1e4], "two": 1.0})
    found = estimates().sums(values, np.repeat([1, 0, 0], 9))
    step = 2 * 3.5 + 2 * 10 + 100 + 2 * 1000 + 1e4
    assert found["one"].tolist() == [2 * step, step] and found["two"].tolist() == [16, 8]


def test_means_are_of_all_samples_of_a_cell() -> None:
    """Of three samples the middle one is not their mean."""
    table = pd.DataFrame({"mangled": ["a"] * 4, GPU_TIME: 1e4, "range": ""}).assign(**dict.fromkeys(KEYS[1:], 1))
    found = Estimates(Window(table), np.array([0, 1, 3]), pd.DataFrame({WORK: [1.0, 2.0, 9.0]}))
    assert found.totals(np.zeros(4, dtype=int))[WORK].tolist() == [16]
    assert found.sums(pd.DataFrame({"one": [1.0, 2.0, 9.0]}), np.zeros(4, dtype=int))["one"].tolist() == [16]


@pytest.mark.parametrize("freedom", [2, 3, 5, 40])
def test_intervals_are_those_of_students_t(freedom: int) -> None:
    """By the polynomials of Abramowitz and Stegun, 26.7.5, in the form of Horner; near the quantile itself."""
    x = 1.6449
    polynomials = [
        x * (x**2 + 1) / 4,
        x * ((5 * x**2 + 16) * x**2 + 3) / 96,
        x * (((3 * x**2 + 19) * x**2 + 17) * x**2 - 15) / 384,
        x * ((((79 * x**2 + 776) * x**2 + 1482) * x**2 - 1920) * x**2 - 945) / 92160,
    ]
    expected = x
    for power, value in enumerate(polynomials, 1):
        expected += value / freedom**power
    (found,) = interval_half_width(np.array([7.0]), np.array([float(freedom)]))
    assert found == pytest.approx(7 * expected, rel=1e-12)
    assert found == pytest.approx(7 * stats.t.ppf(0.95, freedom), rel=5e-3)


def test_intervals_of_less_than_two_degrees_are_of_two() -> None:
    one, two = interval_half_width(np.array([1.0, 1.0]), np.array([0.5, 2.0]))
    assert one == two
