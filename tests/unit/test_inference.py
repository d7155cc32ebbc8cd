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


def sides(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What of processes in their order is of the baseline, and of the candidate."""
    order = np.array(interleaved(["a", "b"], len(given) // 2))
    return given[order == "a"], given[order == "b"]


def test_a_ratio_is_that_of_a_t_test_of_logarithms() -> None:
    one, other = processes(1, 6), processes(2, 6, 1.1e7)
    found = inference.ratio(one, other, paired=False)
    expected = stats.ttest_ind(np.log(other), np.log(one), equal_var=False)
    interval = np.exp(expected.confidence_interval(0.95))
    assert (found.low, found.high) == pytest.approx(tuple(interval)) and found.p_different == pytest.approx(
        expected.pvalue
    )
    found, expected = inference.ratio(one, other, paired=True), stats.ttest_rel(np.log(other), np.log(one))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(expected.confidence_interval(0.95))))
    assert found.p_different == pytest.approx(expected.pvalue) and found.low < found.ratio < found.high


def test_two_one_sided_tests_are_an_interval_within_the_margin() -> None:
    for seed in range(40):
        one, other = sides(processes(seed, 8, apart=0.008))
        found = inference.ratio(one, other, paired=True, confidence=0.90, margin=0.02)
        within = found.low > 1 / 1.02 and found.high < 1.02
        assert (found.p_equivalent < 0.05) == within


def test_equal_processes_are_equivalent_and_one_process_is_refused() -> None:
    found = inference.ratio([1e7] * 3, [1e7] * 3, paired=True)
    assert found.ratio == 1 and inference.verdicts([found]) == [EQUIVALENT] and inference.verdicts([]) == []
    with pytest.raises(ValueError, match="two processes a side"):
        inference.ratio([1e7], [1e7, 1e7], paired=False)


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_interleaved_processes_that_are_alike_are_not_called_different(drift: float) -> None:
    """Over a zoo of comparisons of the same thing, forty times, with and without a drift of ten per cent."""
    wrong = 0
    for zoo in range(ZOOS):
        found = [
            inference.ratio(*sides(processes(1000 * zoo + cell, 10, apart=0.01, drift=drift)), paired=True)
            for cell in range(CELLS)
        ]
        wrong += sum(verdict in (FASTER, SLOWER) for verdict in inference.verdicts(found))
    assert wrong / (ZOOS * CELLS) <= 0.005


def test_what_is_not_interleaved_takes_a_drift_for_a_difference() -> None:
    """Why sides alternate."""
    given = processes(3, 10, apart=0.002, drift=0.1)
    assert inference.ratio(given[:5], given[5:], paired=False).p_different < 0.01
    assert inference.ratio(*sides(given), paired=True).p_different > 0.05


@pytest.mark.parametrize(("others", "count"), [(0, 5), (CELLS - 1, 10)])
def test_a_slower_candidate_is_found_alone_and_among_many_alike(others: int, count: int) -> None:
    """Three per cent; among many more processes are needed, as one of so many is far off by chance."""
    hits = 0
    for zoo in range(20):
        given = [processes(1000 * zoo + cell, 2 * count) for cell in range(others + 1)]
        found = [inference.ratio(*sides(one), paired=True) for one in given[1:]]
        one, other = sides(given[0])
        found.append(inference.ratio(one, other * 1.03, paired=True))
        hits += inference.verdicts(found)[-1] == SLOWER
    assert hits >= 18


def test_verdicts_name_the_direction_and_what_is_not_known() -> None:
    noisy = inference.ratio([1.0, 1.3, 0.8], [1.1, 0.9, 1.2], paired=True)
    faster = inference.ratio(processes(4, 6), processes(5, 6) / 2, paired=True)
    assert inference.verdicts([noisy, faster]) == [UNDECIDED, FASTER]
