"""Comparisons of processes: known answers, no more false alarms than promised, differences found."""

import numpy as np
import pytest
from scipy import stats

from profzoo.compare import inference
from profzoo.compare.inference import EQUIVALENT, FASTER, SLOWER, UNDECIDED
from profzoo.compare.sides import interleaved

CELLS, ZOOS = 42, 40


def processes(seed: int, count: int, step_ns: float = 1e7, apart: float = 0.005, drift: float = 0.0) -> np.ndarray:
    """Medians of processes that run one after the other: their own spread, and a drift over all of them."""
    random = np.random.default_rng(seed)
    return step_ns * np.exp(random.normal(0, apart, count) + drift * np.arange(count) / count)


def sides(given: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[list[int], list[int]]]:
    """What of processes in their order is of the baseline, what of the candidate, and the places of both."""
    order = np.array(interleaved(["a", "b"], len(given) // 2))
    one, other = np.flatnonzero(order == "a"), np.flatnonzero(order == "b")
    return given[one], given[other], (one.tolist(), other.tolist())


def test_a_ratio_of_processes_that_ran_apart_is_that_of_a_t_test_of_logarithms() -> None:
    one, other = processes(1, 6), processes(2, 6, 1.1e7)
    found = inference.ratio(one, other, places=None)
    expected = stats.ttest_ind(np.log(other), np.log(one), equal_var=False)
    interval = np.exp(expected.confidence_interval(0.95))
    assert (found.low, found.high) == pytest.approx(tuple(interval)) and found.p_different == pytest.approx(
        expected.pvalue
    )


@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", ["steady", "drifting", "walking"])
def test_intervals_of_processes_in_turn_hold_the_truth_as_often_as_they_say(count: int, kind: str) -> None:
    """Processes apart by 0.5 %, alone, with a drift of 10 %, and with steps of 2 % from one to the next."""
    random = np.random.default_rng(count)
    held, draws = 0, 1000
    for _ in range(draws):
        times = random.normal(0, 0.005, 2 * count)
        times += {"steady": 0, "drifting": np.linspace(0, 0.1, 2 * count)}.get(
            kind, np.cumsum(random.normal(0, 0.02, 2 * count))
        )
        one, other, places = sides(np.exp(times))
        found = inference.ratio(one, 1.03 * other, places)
        held += found.low < 1.03 < found.high
    assert 0.93 <= held / draws <= 0.985


def test_neighbours_tell_more_than_pairs() -> None:
    """Of processes that drift by 10 %, three a side: 3 % slower is found nearly always, and by pairs of them hardly."""
    by_neighbours = by_pairs = 0
    for seed in range(100):
        one, other, places = sides(processes(seed, 6, drift=0.12))
        by_neighbours += inference.ratio(one, 1.03 * other, places).p_different < 0.05
        by_pairs += stats.ttest_rel(np.log(1.03 * other), np.log(one)).pvalue < 0.05
    assert by_neighbours > 90 and by_pairs < 20


def test_three_pairs_that_happen_to_differ_alike_are_no_proof() -> None:
    """Medians, in ms, of six processes of one cell on an H200, of which pairs say that the second side is 4 % faster."""
    one, other, places = sides(np.array([64.27, 61.18, 60.90, 63.67, 52.71, 50.46]))
    assert stats.ttest_rel(np.log(other), np.log(one)).pvalue < 0.002
    assert inference.ratio(one, other, places).p_different > 0.2


def test_places_say_how_far_apart_processes_ran() -> None:
    """Of three sides, a drift falls on the first and third alike only if it is known where they ran."""
    times = 1e7 * np.exp(0.02 * np.arange(9))
    order = np.array(interleaved(["a", "b", "c"], 3))
    places = np.flatnonzero(order == "a"), np.flatnonzero(order == "c")
    found = inference.ratio(times[places[0]], times[places[1]], places)
    assert found.ratio == pytest.approx(1, abs=1e-6)


def test_what_worked_by_shifts_is_a_paired_t_test_that_moments_of_the_machine_are_no_part_of() -> None:
    moments, own = processes(1, 8, 1e7, 0.05), processes(2, 16, 1.0, 0.002)
    one, other = moments * own[:8], 1.03 * moments * own[8:]
    found = inference.ratio(one, other, sides(np.arange(16.0))[2], paired=True)
    expected = stats.ttest_rel(np.log(other), np.log(one))
    assert (found.low, found.high) == pytest.approx(np.exp(expected.confidence_interval(0.95)))
    assert found.p_different == pytest.approx(expected.pvalue)
    assert inference.verdicts([found]) == [SLOWER]
    assert inference.verdicts([inference.ratio(one, other, None)]) == [UNDECIDED]


def test_two_one_sided_tests_are_an_interval_within_the_margin() -> None:
    for seed in range(40):
        found = inference.ratio(*sides(processes(seed, 8, apart=0.008)), confidence=0.90, margin=0.02)
        within = found.low > 1 / 1.02 and found.high < 1.02
        assert (found.p_equivalent < 0.05) == within


def test_equal_processes_are_equivalent_and_one_process_is_refused() -> None:
    found = inference.ratio(*sides(np.full(6, 1e7)))
    assert found.ratio == 1 and inference.verdicts([found]) == [EQUIVALENT] and inference.verdicts([]) == []
    with pytest.raises(ValueError, match="two processes a side"):
        inference.ratio([1e7], [1e7, 1e7], places=None)


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_interleaved_processes_that_are_alike_are_not_called_different(drift: float) -> None:
    """Over a zoo of comparisons of the same thing, forty times, with and without a drift of ten per cent."""
    wrong = 0
    for zoo in range(ZOOS):
        found = [
            inference.ratio(*sides(processes(1000 * zoo + cell, 10, apart=0.01, drift=drift))) for cell in range(CELLS)
        ]
        wrong += sum(verdict in (FASTER, SLOWER) for verdict in inference.verdicts(found))
    assert wrong / (ZOOS * CELLS) <= 0.005


def test_what_is_not_interleaved_takes_a_drift_for_a_difference() -> None:
    """Why sides alternate."""
    given = processes(3, 10, apart=0.002, drift=0.1)
    assert inference.ratio(given[:5], given[5:], places=None).p_different < 0.01
    assert inference.ratio(*sides(given)).p_different > 0.05


@pytest.mark.parametrize(("others", "count"), [(0, 5), (CELLS - 1, 10)])
def test_a_slower_candidate_is_found_alone_and_among_many_alike(others: int, count: int) -> None:
    """Three per cent; among many more processes are needed, as one of so many is far off by chance."""
    hits = 0
    for zoo in range(20):
        given = [processes(1000 * zoo + cell, 2 * count) for cell in range(others + 1)]
        found = [inference.ratio(*sides(one)) for one in given[1:]]
        one, other, places = sides(given[0])
        found.append(inference.ratio(one, other * 1.03, places))
        hits += inference.verdicts(found)[-1] == SLOWER
    assert hits >= 18


def test_verdicts_name_the_direction_and_what_is_not_known() -> None:
    noisy = inference.ratio(*sides(np.array([1.0, 1.1, 0.9, 1.3, 0.8, 1.2])))
    one, other, places = sides(processes(4, 12))
    faster = inference.ratio(one, other / 2, places)
    assert inference.verdicts([noisy, faster]) == [UNDECIDED, FASTER]
