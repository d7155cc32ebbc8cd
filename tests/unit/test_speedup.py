"""Comparisons of processes: known answers, no more false alarms than promised, differences found."""

import numpy as np
import pytest
from scipy import stats

from profzoo.compare.sides import interleave
from profzoo.statistics import speedup
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED
from tests import processes as simulated
from tests import slow
from tests.benchmarks import compare_power

CELLS, ZOOS = 42, 40


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


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", ["steady", "drifting", "walking"])
def test_intervals_of_processes_in_turn_hold_the_truth_as_often_as_they_say(count: int, kind: str) -> None:
    """Processes apart by 0.5 %, alone, with a drift of 10 %, and with steps of 2 % from one to the next.

    Where they walk, intervals are wider than they need to be: sides that take turns are closer than ranks can know.
    """
    random = np.random.default_rng(count)
    held, draws = 0, 1000
    for _ in range(draws):
        times = random.normal(0, 0.005, 2 * count)
        times += {"steady": 0, "drifting": np.linspace(0, 0.1, 2 * count)}.get(
            kind, np.cumsum(random.normal(0, 0.02, 2 * count))
        )
        one, other, places = sides(np.exp(times))
        found = speedup.estimate_ratio(one, 1.03 * other, places)
        held += found.low < 1.03 < found.high
    assert 0.93 <= held / draws <= (1 if kind == "walking" else 0.985)


def test_neighbours_tell_more_than_pairs() -> None:
    """Of processes that drift by 10 %, three a side: 3 % slower is found nearly always, and by pairs of them hardly."""
    by_neighbours = by_pairs = 0
    for seed in range(100):
        one, other, places = sides(processes(seed, 6, drift=0.12))
        by_neighbours += speedup.estimate_ratio(one, 1.03 * other, places).p_different < 0.05
        by_pairs += stats.ttest_rel(np.log(1.03 * other), np.log(one)).pvalue < 0.05
    assert by_neighbours > 90 and by_pairs < 20


def test_three_pairs_that_happen_to_differ_alike_are_no_proof() -> None:
    """Medians, in ms, of six processes of one cell on an H200, of which pairs say that the second side is 4 % faster."""
    one, other, places = sides(np.array([64.27, 61.18, 60.90, 63.67, 52.71, 50.46]))
    assert stats.ttest_rel(np.log(other), np.log(one)).pvalue < 0.002
    assert speedup.estimate_ratio(one, other, places).p_different > 0.2


def test_places_say_how_far_apart_processes_ran() -> None:
    """Of three sides, a drift falls on the first and third alike only if it is known where they ran."""
    times = 1e7 * np.exp(0.02 * np.arange(9))
    order = np.array(interleave(["a", "b", "c"], 3, "2"))
    places = np.flatnonzero(order == "a"), np.flatnonzero(order == "c")
    found = speedup.estimate_ratio(times[places[0]], times[places[1]], places)
    assert found.ratio == pytest.approx(1, abs=1e-6)


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
    """1 of 32 twice is more than 5 %: ranks alone would never do. Differences 1 to 5 %: t = 3 / 0.7071 of 4 degrees.

    Without the ends: 2, 3, 4 %, drawn in 2, 2, 3, 4, 4 of deviation 1, so that t = 3 / (sqrt(5) / 3) of 2 degrees.
    """
    between = np.array([0.01, 0.02, 0.03, 0.04, 0.05])
    found = speedup.estimate_ratio(np.ones(5), np.exp(between), None, paired=True)
    assert found.p_different == pytest.approx(2 * stats.t.sf(3 / 0.70710678, 4)) and found.ratio == pytest.approx(
        np.exp(0.03)
    )
    # Half of the interval is 0.01963 by t, and 0.03207 without the ends; from 1 to 5 % is more than the first.
    assert (found.low, found.high) == pytest.approx(np.exp([0.01, 0.05]), rel=1e-6)
    wide = speedup.estimate_ratio(np.ones(5), np.exp([0.01, 0.02, 0.03, 0.04, 0.04]), None, paired=True)
    assert (wide.low, wide.high) == pytest.approx(np.exp([0.01, 0.028 + 2.776445 * 0.0058310]), rel=1e-5)
    (_, without) = speedup.compare_pairs(np.zeros(5), between)
    assert (without.middle, without.error, without.freedom) == pytest.approx((0.03, 0.01 * np.sqrt(5) / 3, 2))
    # One that is far off: t has nothing to say then, what is without the ends has.
    far = speedup.estimate_ratio(np.ones(5), np.exp([0.029, 0.03, 0.031, 0.032, 0.30]), None, paired=True)
    assert far.p_different < 0.05 < stats.ttest_1samp([0.029, 0.03, 0.031, 0.032, 0.30], 0).pvalue
    # One that disagrees: never.
    assert (
        speedup.estimate_ratio(np.ones(5), np.exp([-0.001, 0.03, 0.03, 0.03, 0.03]), None, paired=True).p_different
        > 0.05
    )


def test_two_one_sided_tests_are_an_interval_within_the_margin() -> None:
    for seed in range(40):
        found = speedup.estimate_ratio(*sides(processes(seed, 8, apart=0.008)), confidence=0.90, margin=0.02)
        within = found.low > 1 / 1.02 and found.high < 1.02
        assert (found.p_equivalent < 0.05) == within


def test_equal_processes_are_equivalent_and_one_process_is_refused() -> None:
    found = speedup.estimate_ratio(*sides(np.full(6, 1e7)))
    assert found.ratio == 1 and speedup.decide_outcomes([found]) == [EQUIVALENT] and speedup.decide_outcomes([]) == []
    with pytest.raises(ValueError, match="two processes per side"):
        speedup.estimate_ratio([1e7], [1e7, 1e7], places=None)


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_interleaved_processes_that_are_alike_are_not_called_different(drift: float) -> None:
    """Over a zoo of comparisons of the same thing, forty times, with and without a drift of ten per cent."""
    wrong = 0
    for zoo in range(ZOOS):
        found = [
            speedup.estimate_ratio(*sides(processes(1000 * zoo + cell, 10, apart=0.01, drift=drift)))
            for cell in range(CELLS)
        ]
        wrong += sum(verdict in (FASTER, SLOWER) for verdict in speedup.decide_outcomes(found))
    assert wrong / (ZOOS * CELLS) <= 0.005


def test_what_is_not_interleaved_takes_a_drift_for_a_difference() -> None:
    """Why sides alternate."""
    given = processes(3, 10, apart=0.002, drift=0.1)
    assert speedup.estimate_ratio(given[:5], given[5:], places=None).p_different < 0.01
    assert speedup.estimate_ratio(*sides(given)).p_different > 0.05


@pytest.mark.parametrize(("others", "count"), [(0, 5), (CELLS - 1, 10)])
def test_a_slower_candidate_is_found_alone_and_among_many_alike(others: int, count: int) -> None:
    """Three per cent; among many more processes are needed, as one of so many is far off by chance."""
    hits = 0
    for zoo in range(20):
        given = [processes(1000 * zoo + cell, 2 * count) for cell in range(others + 1)]
        found = [speedup.estimate_ratio(*sides(one)) for one in given[1:]]
        one, other, places = sides(given[0])
        found.append(speedup.estimate_ratio(one, other * 1.03, places))
        hits += speedup.decide_outcomes(found)[-1] == SLOWER
    assert hits >= 18


def test_verdicts_name_the_direction_and_what_is_not_known() -> None:
    noisy = speedup.estimate_ratio(*sides(np.array([1.0, 1.1, 0.9, 1.3, 0.8, 1.2])))
    one, other, places = sides(processes(4, 12))
    faster = speedup.estimate_ratio(one, other / 2, places)
    assert speedup.decide_outcomes([noisy, faster]) == [UNDECIDED, FASTER]


@pytest.mark.parametrize("kind", slow.first(simulated.KINDS, 2))
@pytest.mark.parametrize("count", slow.first([5, 10]))
def test_nominal_error_rates_hold_for_all_kinds_of_processes(kind: str, count: int) -> None:
    """5 % and three standard errors of 600 draws; tests/benchmarks/compare_power draws more, and of more counts."""
    for shifts in (False, True):
        different, equivalent, _ = compare_power.rates(kind, count, 600, speedup.estimate_ratio, shifts)
        assert different <= 0.077 and equivalent <= 0.077


@pytest.mark.parametrize("shifts", slow.first([False, True]))
def test_more_repeats_find_more_where_one_process_of_ten_is_disturbed(shifts: bool) -> None:
    """By t-tests, as until issue 37, 3 % were found less often with each process more."""

    def found(count: int, compare: compare_power.Compare) -> float:
        each = [compare_power.simulated("disturbed", count, 0.03, seed, compare, shifts) for seed in range(400)]
        return float(np.mean([one.p_different <= 0.05 and one.ratio > 1 for one in each]))

    now = [found(count, speedup.estimate_ratio) for count in (3, 5, 10, 20)]
    assert now == sorted(now) and now[2] > 0.7 and now[3] > 0.93
    then = [found(count, compare_power.before) for count in (3, 20)]
    assert then[1] < then[0] - 0.1


def test_a_slow_first_process_makes_no_difference_that_is_there_go_away() -> None:
    """Slower by just the margin, ten a side; the first process runs from cold caches, whichever side's it is."""
    said = [compare_power.simulated("slow first", 10, 0.02, seed, speedup.estimate_ratio) for seed in range(600)]
    assert np.mean([one.p_equivalent <= 0.05 for one in said]) <= 0.077
    # By t-tests with the baseline always first, as until issue 37, it was called equivalent in 18 %.
    said = [compare_power.simulated("slow first", 10, 0.02, seed, compare_power.before) for seed in range(300)]
    assert np.mean([one.p_equivalent <= 0.05 for one in said]) > 0.12
