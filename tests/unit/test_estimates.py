"""Totals and their intervals, where the truth is known."""

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates, interval_half_width
from profzoo.tools.ncu.launch_sampling import RunPrices, choose_launches
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window


def step(seed: int, layers: int = 10) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A step of layers of six kernels, half of which do other work in other layers, and what each launch counts.

    Work grows with time beyond 2 us. Bytes are those that the launch before did not leave in L2, and differ by chance.
    """
    chance = np.random.default_rng(seed)
    rows, before = [], 0
    scales = chance.choice([1.0, 1.0, 2.0, 4.0], size=(layers, 6))
    base = 10 ** chance.uniform(3.7, 5, size=6)
    for layer in range(layers):
        for kernel in chance.permutation(6) if layer % 3 == 0 else range(6):
            time = 2e3 + base[kernel] * (scales[layer, kernel] if kernel % 2 else 1.0)
            left = [0.2, 0.5, 0.8][before % 3] * chance.normal(1, 0.01)
            bytes_ = 300 * min(time, 4e4) * (1 - left)
            rows.append(("abcdef"[kernel], time * chance.normal(1, 0.003), 900 * (time - 2e3), bytes_))
            before = kernel
    frame = pd.DataFrame(rows, columns=["mangled", GPU_TIME, "instructions", "dram_bytes"])
    return frame[["mangled", GPU_TIME]].assign(range="", **dict.fromkeys(KEYS[1:], 1)), frame.iloc[:, 2:]


def estimated(census: pd.DataFrame, counts: pd.DataFrame, wanted: float) -> Estimates:
    """What the launches chosen for an error say."""
    taken = choose_launches(census, wanted, RunPrices(5.0, 0.2, 10_000)).taken
    return Estimates(Window(census), np.flatnonzero(taken), counts[taken])


def test_totals_of_launches_that_do_the_same_are_exact() -> None:
    census = pd.DataFrame({"mangled": ["a"] * 30 + ["b"] * 20, GPU_TIME: [1e4] * 30 + [5e4] * 20, "range": ""})
    census = census.assign(**dict.fromkeys(KEYS[1:], 1))
    counts = pd.DataFrame({"instructions": [7.0] * 30 + [11.0] * 20, "dram_bytes": 3.0})
    found = Estimates(Window(census), np.array([0, 30]), counts.iloc[[0, 30]])
    totals = found.totals(np.zeros(50, dtype=int)).iloc[0]
    assert (totals["launches"], totals["instructions"], totals["dram_bytes"]) == (50, 430.0, 150.0)
    assert 0 < totals["instructions_se"] < 0.01 * 430
    assert found.weights().tolist() == [30.0, 20.0]


@pytest.mark.parametrize("name", ["instructions", "dram_bytes"])
def test_groups_add_up_to_the_whole(name: str) -> None:
    census, counts = step(1)
    found = estimated(census, counts, 0.03)
    whole, parts = found.totals(np.zeros(60, dtype=int)), found.totals(pd.factorize(census["mangled"])[0])
    assert parts[name].sum() == pytest.approx(whole[name][0])
    assert (parts[f"{name}_se"] ** 2).sum() == pytest.approx(whole[f"{name}_se"][0] ** 2)
    assert parts["launches"].sum() == 60


@pytest.mark.slow
def test_intervals_hold_the_truth_about_nine_times_in_ten() -> None:
    held, errors = [], []
    for seed in range(60):
        census, counts = step(seed)
        found = estimated(census, counts, 0.05).totals(np.zeros(len(census), dtype=int))
        for name in counts:
            error = found[name][0] - counts[name].sum()
            wide = interval_half_width(found[f"{name}_se"].to_numpy(), found[f"{name}_freedom"].to_numpy())[0]
            held.append(abs(error) <= wide)
            errors.append(abs(error) / counts[name].sum())
    assert 0.85 <= np.mean(held) <= 0.99 and np.mean(errors) < 0.03


def test_intervals_widen_where_the_profiled_say_little() -> None:
    """Of launches whose times differ by four, one of each configuration says less than those that were chosen."""
    census, counts = step(3)
    first = census.drop_duplicates(KEYS).index.to_numpy()
    few = Estimates(Window(census), first, counts.iloc[first]).totals(np.zeros(len(census), dtype=int))
    chosen = estimated(census, counts, 0.03).totals(np.zeros(len(census), dtype=int))
    assert few["instructions_se"][0] > 5 * chosen["instructions_se"][0]


def test_a_launch_unlike_the_one_that_stands_for_it_has_the_wider_interval() -> None:
    """Of three launches of a configuration the first was profiled; the second is like it, the third takes longer."""
    census = pd.DataFrame({"mangled": "a", GPU_TIME: [2e4, 2.01e4, 3e4], "range": ""})
    census = census.assign(**dict.fromkeys(KEYS[1:], 1))
    found = Estimates(Window(census), np.array([0]), pd.DataFrame({"instructions": [100.0]}))
    each = found.totals(np.arange(3))["instructions_se"]
    assert each[0] <= each[1] < 2 * each[0] and each[2] > 5 * each[1]
    # Off by as much as they are unlike, both ways; together no less than the mean launch is.
    whole = found.totals(np.zeros(3, dtype=int))["instructions_se"][0]
    assert each[2] > whole / 3 > each[0] and each.sum() == pytest.approx(whole, rel=0.1)


def test_launches_for_which_nothing_stands_go_into_no_total() -> None:
    census, counts = step(4)
    some = census.index[census["mangled"].isin(["a", "b"])].to_numpy()
    found = Estimates(Window(census), some, counts.iloc[some])
    totals = found.totals(np.zeros(len(census), dtype=int)).iloc[0]
    assert totals["launches"] == len(some) and (found.labels() >= 0).sum() == len(some)
    assert totals["instructions"] == pytest.approx(counts.loc[some, "instructions"].sum())
