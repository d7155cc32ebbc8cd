"""What several processes of one cell say of its step: spread within and between, what has settled, what is unsteady."""

import numpy as np
import pandas as pd
import pytest

from profzoo.statistics import process_repeats
from profzoo.statistics.steady_state import drop_warmup


def test_steps_count_from_where_they_have_settled() -> None:
    random = np.random.default_rng(7)
    steady = 1e7 * np.exp(random.normal(0, 0.01, 40))
    falling = np.concatenate([1e7 * np.array([5, 2, 1.5, 1.3, 1.2]), steady])
    assert list(drop_warmup(falling)) == list(steady)[-len(drop_warmup(falling)) :]
    assert len(drop_warmup(falling)) > 30 and len(drop_warmup(steady)) > 20
    # Never more than half: what does not settle is told as unsteady instead.
    assert len(drop_warmup(1e7 * np.linspace(2, 1, 41))) == 20
    assert list(drop_warmup(np.array([3.0]))) == [3.0] and list(drop_warmup(np.array([3.0, 4.0]))) == [4.0]


def test_processes_are_of_the_gpus_clock_where_it_has_any() -> None:
    steps = pd.DataFrame({"wall_ns": [9, 1, 1, 9, 2, 2], "gpu_ns": [np.nan] * 6, "process": [0, 0, 0, 1, 1, 1]})
    assert [list(times) for times in process_repeats.processes(steps)] == [[1, 1], [2, 2]]
    steps["gpu_ns"] = [9, 3, 3, 9, 4, 4]
    assert [list(times) for times in process_repeats.processes(steps)] == [[3, 3], [4, 4]]
    assert [list(times) for times in process_repeats.processes(steps[:3].drop(columns="process"))] == [[3, 3]]


def test_repeats_tell_variance_between_processes_from_that_within() -> None:
    random = np.random.default_rng(5)
    within = [1e7 * np.exp(random.normal(0, 0.01, 50)) for _ in range(20)]
    between = [steps * factor for steps, factor in zip(within, np.exp(random.normal(0, 0.01, 20)), strict=True)]
    assert process_repeats.between_process_share(within) < 0.05
    assert 0.3 < process_repeats.between_process_share(between) < 0.7
    assert process_repeats.between_process_share([np.full(3, 1.0), np.full(3, 2.0)]) == 1
    assert np.isnan(process_repeats.between_process_share([np.full(9, 1.0)]))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([np.full(20, 100.0), np.full(20, 101.0)], None),
        ([np.full(20, 100.0), np.full(20, 110.0)], "the slowest process takes 10% longer than the fastest"),
        ([np.tile([80.0, 100.0, 120.0], 10)], "the middle half of the steps spreads by 40%"),
        (
            [np.repeat([100.0, 93.0], 20)],
            "the time per step changes by -7% from the first half of the window to the second",
        ),
        (
            [np.array([*[100.0] * 12, 1000.0, *[100.0] * 7])],
            "some steps take much longer, so that the mean is 45% above the median",
        ),
        ([np.array([100.0])], None),
    ],
)
def test_times_that_are_not_steady_say_why(given: list[np.ndarray], why: str | None) -> None:
    assert process_repeats.summarise_processes(given).unsteady == why


# Means 20, 30 and 42 ns, medians 20, 20 and 42.
UNLIKE = [np.array([10.0, 20, 30]), np.array([20.0, 20, 50]), np.array([40.0, 44])]


def test_processes_count_alike_however_many_steps_they_have() -> None:
    found = process_repeats.summarise_processes(UNLIKE)
    # The mean of all eight steps is 29.25, their median 25.
    assert found.mean_ns == pytest.approx(92 / 3) and found.median_ns == 20
    assert (found.steps, found.processes) == (8, 3)
    # The third as 40, 42 and 44: of 10 20 20 20 30 40 42 44 50 the third and the seventh.
    assert (found.lower_quartile_ns, found.upper_quartile_ns) == (20, 42)
    # Squares of 10.667, 0.667 and 11.333 are 242.667, their deviation 11.015, the error 6.360, t of 2 degrees 4.3027.
    assert found.mean_high_ns == pytest.approx(92 / 3 + 27.363, abs=0.001)
    # As much below would be 3.3, and no step is shorter than 10.
    assert found.mean_low_ns == 10


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        # Means 102, 106 and 104: their deviation is 2, the error 1.1547, t of 2 degrees 4.3027.
        ([[90, 114], [94, 118], [92, 116]], 104 - 4.9683, 104 + 4.9683),
        # One process: parts of two steps, of 101, 105, 99, 103 and 102; the error is 1, t of 4 degrees 2.7764.
        ([[100, 102, 104, 106, 98, 100, 102, 104, 100, 104]], 102 - 2.7764, 102 + 2.7764),
        # Two processes: the error is 1, t of 1 degree 12.7062.
        ([[99, 101], [101, 103]], 99, 101 + 12.7062),
        # Two steps: the error is 5, t of 1 degree 12.7062.
        ([[100, 110]], 100, 105 + 63.531),
        ([[7]], np.nan, np.nan),
    ],
)
def test_the_interval_of_the_mean(given: list[list[float]], low: float, high: float) -> None:
    found = process_repeats.mean_interval([np.array(steps, dtype=float) for steps in given])
    assert found == pytest.approx((low, high), abs=0.001, nan_ok=True)


def test_the_interval_of_the_mean_holds_it_in_95_of_100_cases() -> None:
    random = np.random.default_rng(9)
    for processes, steps in ((1, 20), (5, 20)):
        held = 0
        for _ in range(2000):
            between = random.normal(0, 1, processes) if processes > 1 else np.zeros(1)
            low, high = process_repeats.mean_interval([random.normal(100 + shift, 2, steps) for shift in between])
            held += low <= 100 <= high
        assert 0.935 < held / 2000 < 0.965


@pytest.mark.parametrize(
    ("logs", "share"),
    [
        # Within: (2 + 8) / 3 = 10/3. Among: 2 * 2.4 ** 2 + 3 * 1.6 ** 2 = 19.2. Typical size: 5 - 13/5 = 2.4.
        ([[0, 2], [3, 5, 7]], (19.2 - 10 / 3) / 2.4 / ((19.2 - 10 / 3) / 2.4 + 10 / 3)),
        # Grand mean 3.5. Among: (2 * 6.25 + 3 * 2.25 + 0.25) / 2 = 9.75. Typical: (6 - 14/6) / 2 = 11/6. Between: 3.5.
        ([[0, 2], [3, 5, 7], [4]], 3.5 / (3.5 + 10 / 3)),
        # As many processes as there are steps but one. Within 2, among 2 * (8/3) ** 2 + (16/3) ** 2, typical 4/3.
        ([[0, 2], [9]], 30.5 / 32.5),
        ([[0, 4], [1, 3]], 0),
        ([[1, 1], [1, 1]], 0),
        ([[1], [2], [3]], np.nan),
        ([[1, 2, 3]], np.nan),
    ],
)
def test_the_share_of_variance_between_processes(logs: list[list[float]], share: float) -> None:
    found = process_repeats.between_process_share([np.exp(np.array(steps, dtype=float)) for steps in logs])
    assert found == pytest.approx(share, nan_ok=True)


LEVEL = [100.0] * 10


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([LEVEL, [104.9] * 10], None),
        ([LEVEL, [105.1] * 10], "the slowest process takes 5% longer than the fastest"),
        ([[94.8, 105, 105, 94.8] * 3], "the middle half of the steps spreads by 10%"),
        ([[95.2, 105, 105, 95.2] * 3], None),
        # Four steps have halves, three have none.
        ([[100, 100, 107, 107]], "the time per step changes by +7% from the first half of the window to the second"),
        ([[100, 100, 107]], None),
        ([[100, 100, 104.9, 104.9]], None),
        (
            [[100, 100, 105.1, 105.1]],
            "the time per step changes by +5% from the first half of the window to the second",
        ),
        # The largest change, whichever way.
        (
            [[100, 100, 104, 104], [104, 104, 97, 97]],
            "the time per step changes by -7% from the first half of the window to the second",
        ),
        # One of ten is so much longer that the mean is 29 and 31 % above the median.
        ([[*LEVEL[:4], 390.0, *LEVEL[:5]]], None),
        ([[*LEVEL[:4], 410.0, *LEVEL[:5]]], "some steps take much longer, so that the mean is 31% above the median"),
    ],
)
def test_bounds_of_what_is_steady(given: list[list[float]], why: str | None) -> None:
    assert process_repeats.summarise_processes([np.array(steps) for steps in given]).unsteady == why


@pytest.mark.parametrize(("taken", "unsteady"), [(0.0499, False), (0.05, False), (0.0501, True), (np.nan, False)])
def test_what_others_may_take(taken: float, unsteady: bool) -> None:
    found = process_repeats.summarise_processes([np.array(LEVEL)], taken)
    assert (found.unsteady is not None) == unsteady and found.taken_share == pytest.approx(taken, nan_ok=True)


def test_the_cut_is_where_the_error_of_the_mean_is_least() -> None:
    """Without its first step a series of 101 and 99 in turn varies less, and is known less well."""
    turns = [500.0, *[101.0, 99.0] * 5]
    assert list(drop_warmup(np.array(turns))) == turns[1:]
    # Five stay, however long the first ones take, and half of more.
    for count, left in ((7, 5), (8, 5), (6, 5), (5, 4), (13, 6)):
        falling = np.array([900.0, *np.geomspace(800, 100, count - 1)])
        assert len(drop_warmup(falling)) == left
