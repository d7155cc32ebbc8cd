"""What several processes of one cell say of its step: spread within and between, what has settled, what is unsteady."""

import numpy as np
import pandas as pd
import pytest

from profzoo.settling import settled
from profzoo.tables import repeats


def test_steps_count_from_where_they_have_settled() -> None:
    random = np.random.default_rng(7)
    steady = 1e7 * np.exp(random.normal(0, 0.01, 40))
    falling = np.concatenate([1e7 * np.array([5, 2, 1.5, 1.3, 1.2]), steady])
    assert list(settled(falling)) == list(steady)[-len(settled(falling)) :]
    assert len(settled(falling)) > 30 and len(settled(steady)) > 20
    # Never more than half: what does not settle is told as unsteady instead.
    assert len(settled(1e7 * np.linspace(2, 1, 41))) == 20
    assert list(settled(np.array([3.0]))) == [3.0] and list(settled(np.array([3.0, 4.0]))) == [4.0]


def test_processes_are_of_the_gpus_clock_where_it_has_any() -> None:
    steps = pd.DataFrame({"wall_ns": [9, 1, 1, 9, 2, 2], "gpu_ns": [np.nan] * 6, "process": [0, 0, 0, 1, 1, 1]})
    assert [list(times) for times in repeats.processes(steps)] == [[1, 1], [2, 2]]
    steps["gpu_ns"] = [9, 3, 3, 9, 4, 4]
    assert [list(times) for times in repeats.processes(steps)] == [[3, 3], [4, 4]]
    assert [list(times) for times in repeats.processes(steps[:3].drop(columns="process"))] == [[3, 3]]


def test_repeats_tell_variance_between_processes_from_that_within() -> None:
    random = np.random.default_rng(5)
    within = [1e7 * np.exp(random.normal(0, 0.01, 50)) for _ in range(20)]
    between = [steps * factor for steps, factor in zip(within, np.exp(random.normal(0, 0.01, 20)), strict=True)]
    assert repeats.between_share(within) < 0.05
    assert 0.3 < repeats.between_share(between) < 0.7
    assert repeats.between_share([np.full(3, 1.0), np.full(3, 2.0)]) == 1
    assert np.isnan(repeats.between_share([np.full(9, 1.0)]))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([np.full(20, 100.0), np.full(20, 101.0)], None),
        ([np.full(20, 100.0), np.full(20, 110.0)], "processes are 10% apart"),
        ([np.tile([80.0, 100.0, 120.0], 10)], "the middle half of the steps spreads by 40%"),
        ([np.repeat([100.0, 93.0], 20)], "steps of the second half take -7% of time"),
        (
            [np.array([*[100.0] * 12, 1000.0, *[100.0] * 7])],
            "some steps take much longer, so that the mean is 45% above the median",
        ),
        ([np.array([100.0])], None),
    ],
)
def test_times_that_are_not_steady_say_why(given: list[np.ndarray], why: str | None) -> None:
    assert repeats.of(given).unsteady == why
