"""Which launches are chosen, and what stands for what, on windows of which all is known."""

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.ncu import launch_sampling
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates
from profzoo.tools.ncu.launch_sampling import LaunchSampling, Run, RunPrices, choose_launches
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

CHEAP = RunPrices(start_s=5.0, launch_s=0.2, launches=10_000)


def window(kernels: str, times: list[float], grids: list[int] | None = None, part: str = "forward") -> pd.DataFrame:
    """A census of kernels of one letter each, in ns."""
    frame = pd.DataFrame({"mangled": list(kernels), "range": part, GPU_TIME: times})
    return frame.assign(**dict.fromkeys(KEYS[1:], 1)) if grids is None else frame.assign(
        **{**dict.fromkeys(KEYS[1:], 1), "grid_x": grids}
    )  # fmt: skip


def long(repeats: int = 12, seed: int = 7) -> pd.DataFrame:
    """A step of layers of four kernels, two of which take other times in other layers."""
    chance = np.random.default_rng(seed)
    kernels = "abcd" * repeats
    times = [1e4 * (1 + "abcd".index(one)) for one in kernels]
    uneven = [time * (3 if place % 8 == 1 else 1) for place, time in enumerate(times)]
    return window(kernels, list(np.array(uneven) * chance.uniform(0.995, 1.005, len(kernels))))


def test_what_takes_unlike_times_is_profiled_apart() -> None:
    census = long()
    taken = choose_launches(census, 0.02, CHEAP).taken
    slow = (census[GPU_TIME] > 2.5 * 1e4) & (census["mangled"] == "b")
    assert taken[slow].any() and taken[~slow & (census["mangled"] == "b")].any()


def test_what_follows_other_launches_is_profiled_apart() -> None:
    """The elementwise kernel e finds in L2 what the one before it left, which differs."""
    census = window("aebe" * 8, [3e4, 2e4, 3.1e4, 2e4] * 8)
    taken = choose_launches(census, 0.02, CHEAP).taken
    places = np.flatnonzero(taken & (census["mangled"] == "e"))
    assert {census["mangled"][place - 1] for place in places} == {"a", "b"}


def test_alike_launches_are_not_profiled_twice() -> None:
    assert choose_launches(window("ab" * 50, [1e4, 2e4] * 50), 0.1, CHEAP).launches == 2


@pytest.mark.parametrize("wanted", [0.3, 0.1, 0.05, 0.02])
def test_runs_take_what_is_said_of_them(wanted: float) -> None:
    census = long()
    sample = choose_launches(census, wanted, CHEAP)
    taken, launches = np.zeros(len(census), dtype=bool), 0
    of_kernel = census.groupby("mangled").cumcount() + 1
    for run in sample.runs:
        here = (
            of_kernel.isin(run.numbers) & census["mangled"].isin(run.kernels)
            if run.kernels is not None
            else (census.groupby(KEYS).cumcount() + 1).isin(run.numbers)
        )
        taken |= here.to_numpy()
        launches += int(here.sum())
    assert (taken == sample.taken).all() and launches == sample.launches
    assert sample.error <= wanted or wanted < 0.05


def test_a_smaller_error_takes_more_launches() -> None:
    census = long(40)
    taken = [choose_launches(census, wanted, CHEAP).launches for wanted in (0.5, 0.05, 0.01)]
    assert taken == sorted(taken) and taken[0] < taken[-1]


@pytest.mark.parametrize(
    "prices",
    [RunPrices(5.0, 0.2, 6), RunPrices(5.0, 0.2, 10_000, seconds=7.0), RunPrices(5.0, 2.0, 10_000, seconds=22.0)],
    ids=["launches", "seconds", "dear"],
)
def test_prices_are_kept(prices: RunPrices) -> None:
    sample = choose_launches(long(), 0.001, prices)
    assert sample.launches <= prices.launches
    assert prices.of(sample.launches, len(sample.runs)) <= prices.seconds
    assert sample.launches > 4


def test_there_is_one_run_where_there_may_be_no_more() -> None:
    assert len(choose_launches(long(), 0.001, CHEAP, several=False).runs) == 1


def test_the_same_census_gives_the_same_choice() -> None:
    first, second = (choose_launches(long(), 0.02, CHEAP) for _ in range(2))
    assert first.runs == second.runs and (first.taken == second.taken).all()


def test_what_is_expected_shrinks_with_every_run() -> None:
    sample, known = choose_launches(long(), 0.01, CHEAP), LaunchSampling(long())
    errors = [
        launch_sampling.relative_half_width(
            known.variance(known.samples(np.any([known.takes(run) for run in sample.runs[:count]], axis=0)))
        )
        for count in range(1, len(sample.runs) + 1)
    ]
    assert errors == sorted(errors, reverse=True) and errors[-1] == pytest.approx(sample.error)


@pytest.mark.parametrize("wanted", [0.5, 0.02])
def test_weights_add_up_to_the_launches_of_the_census(wanted: float) -> None:
    census = pd.concat([long(), window("ee", [1e4, 5e4], [2, 7], "backward")], ignore_index=True)
    sample = choose_launches(census, wanted, CHEAP)
    rows = np.flatnonzero(sample.taken)
    found = Estimates(LaunchSampling(census).window, rows, pd.DataFrame({"one": np.ones(len(rows))}))
    weights = pd.Series(found.weights(), index=pd.MultiIndex.from_frame(census.loc[rows, KEYS]))
    counted = census.groupby(KEYS).size()
    pd.testing.assert_series_equal(weights.groupby(level=KEYS).sum(), counted.astype(float), check_names=False)


def test_a_first_run_takes_one_launch_of_each_configuration() -> None:
    census = window("aab", [1e4, 1e4, 2e4], [1, 2, 1])
    assert LaunchSampling(census).takes(Run(frozenset({1}))).all()
