"""What several processes of one cell say of its step: spread within and between, what has settled, what is unsteady."""

import numpy as np
import pandas as pd
import pytest

from profzoo.statistics import process_repeats
from profzoo.statistics.percentiles import drop_warmup


@pytest.mark.parametrize(
    ("times", "counted"),
    [
        # After the first, variances over steps of all seven, the last six and the last five: 714, 243 and 80.
        ([999, 300, 200, 150, 100, 100, 100, 100], [150, 100, 100, 100, 100]),
        # Without a trend none is cut but the first: a variance of 1 over twelve steps is less than over eleven.
        ([99, *[1, 3] * 6], [1, 3] * 6),
        # Up to the middle, however much it falls.
        ([99, 90, 80, 70, 60, 50, 40, 30, 20, 10, 10, 10, 10], [30, 20, 10, 10, 10, 10]),
        # Five or fewer stay as they are.
        ([9, 8, 1, 1, 1, 1], [8, 1, 1, 1, 1]),
        ([9, 8, 1], [8, 1]),
        ([9, 8], [8]),
        ([9], [9]),
        # Of cuts that leave as little, the first.
        ([9, *[5] * 12], [5] * 12),
    ],
)
def test_the_steadiest_rest_counts(times: list[int], counted: list[int]) -> None:
    assert drop_warmup(np.array(times, dtype=float)).tolist() == counted


def test_processes_are_of_the_gpus_clock_where_it_has_any() -> None:
    steps = pd.DataFrame({"wall_ns": [9, 1, 1, 9, 2, 2], "gpu_ns": [np.nan] * 6, "process": [0, 0, 0, 1, 1, 1]})
    assert [list(times) for times in process_repeats.processes(steps)] == [[1, 1], [2, 2]]
    steps["gpu_ns"] = [9, 3, 3, 9, 4, 4]
    assert [list(times) for times in process_repeats.processes(steps)] == [[3, 3], [4, 4]]
    assert [list(times) for times in process_repeats.processes(steps[:3].drop(columns="process"))] == [[3, 3]]


# Means 20, 30 and 42 ns, medians 20, 20 and 42.
UNLIKE = [np.array([10.0, 20, 30]), np.array([20.0, 20, 50]), np.array([40.0, 44])]


def test_compared_processes_are_of_their_time_on_a_core_and_lose_only_their_first_step() -> None:
    """The other process has no such times, and loses its warm-up; of a GPU, they do not count."""
    own = [9, *[8] * 6, *[2] * 6]
    steps = pd.DataFrame({"process": [0] * 13 + [1] * 13, "wall_ns": [10] * 13 + own, "gpu_ns": [np.nan] * 26,
                          "own_ns": own + [np.nan] * 13})  # fmt: skip
    found = process_repeats.processes(steps)
    assert [times.tolist() for times in found] == [own[1:], [2] * 6]
    assert process_repeats.processes(steps.assign(gpu_ns=5))[0].tolist() == [5] * 12


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
        ([[0, 0], [1, 1]], 1),
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
        ([LEVEL, [105.1] * 10], "the slowest process takes 5.1% longer than the fastest"),
        ([[94.8, 105, 105, 94.8] * 3], "the middle half of the steps spreads by 10.2%"),
        ([[95.2, 105, 105, 95.2] * 3], None),
        # Four steps have halves, three have none.
        ([[100, 100, 107]], None),
        ([[100, 100, 104.9, 104.9]], None),
        ([[100, 100, 105.1, 105.1]], "the time per step changes by +5.1% from the first half of the window to the second"),
        # The largest change, whichever way.
        ([[100, 100, 104, 104], [104, 104, 97, 97]],
         "the time per step changes by -7% from the first half of the window to the second"),
        # One of ten is so much longer that the mean is 29 and 31 % above the median.
        ([[*LEVEL[:4], 390.0, *LEVEL[:5]]], None),
        ([[*LEVEL[:4], 410.0, *LEVEL[:5]]], "some steps take much longer, so that the mean is 31% above the median"),
        ([[100]], None),
    ],
)  # fmt: skip
def test_bounds_of_what_is_steady(given: list[list[float]], why: str | None) -> None:
    assert process_repeats.summarise_processes([np.array(steps) for steps in given]).unsteady == why


@pytest.mark.parametrize(("taken", "unsteady"), [(0.0499, False), (0.05, False), (0.0501, True), (np.nan, False)])
def test_what_others_may_take(taken: float, unsteady: bool) -> None:
    found = process_repeats.summarise_processes([np.array(LEVEL)], taken)
    assert (found.unsteady is not None) == unsteady and found.taken_share == pytest.approx(taken, nan_ok=True)


@pytest.mark.parametrize(("count", "left"), [(7, 5), (8, 5), (6, 5), (5, 4), (13, 6), (42, 21)])
def test_five_steps_stay_however_long_the_first_ones_take_and_half_of_more(count: int, left: int) -> None:
    assert len(drop_warmup(np.array([900.0, *np.geomspace(800, 100, count - 1)]))) == left
