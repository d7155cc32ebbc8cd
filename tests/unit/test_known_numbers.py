"""Numbers worked out by hand, of comparisons, repeats, launches and trials: small inputs that leave one answer."""

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import comparison_table, contributions
from profzoo.compare.contributions import KERNEL_LEVEL, TracedCell
from profzoo.statistics import process_repeats
from profzoo.tables.kernel_table import KEYS
from profzoo.trials import trial_table as trials
from profzoo.verdicts.rules import launch_traits
from tests.unit.compared import STEPS


def launched(*launches: float) -> TracedCell:
    """A cell with one kernel in as many configurations, which are launched so often each."""
    rows = pd.DataFrame({"kernel": "k", "range": "forward", "class": "gemm", "launches": launches, "total_ns": 500.0})
    rows = rows.assign(**{key: "k" if key == "mangled" else 1 for key in KEYS if key not in rows})
    return TracedCell(rows.assign(grid_x=range(len(launches))), STEPS.iloc[0].to_dict())


def test_a_kernel_is_launched_as_often_as_all_of_its_configurations_are() -> None:
    """1 and 3 launches are 4, as 2 and 2 are, though the most of one configuration are 3 and 2; 2 and 3 are 5."""
    for others, change in (((2.0, 2.0), ""), ((2.0, 3.0), contributions.LAUNCHED)):
        found = (
            contributions.contribution_rows(launched(1.0, 3.0), launched(*others)).set_index("level").loc[KERNEL_LEVEL]
        )
        assert (found["change"], found["baseline_launches"], found["candidate_launches"]) == (change, 4, sum(others))


def test_repeats_are_of_processes_and_quartiles_of_steps() -> None:
    """Means 2 and 6, medians 1 and 6; of 1, 1, 4, 4, 6, 8 the quartiles are 1.75 and 5.5."""
    found = process_repeats.summarise_processes([np.array([1.0, 1.0, 4.0]), np.array([4.0, 6.0, 8.0])])
    assert (found.mean_ns, found.median_ns, found.lower_quartile_ns, found.upper_quartile_ns) == (4, 3.5, 1.75, 5.5)
    assert (found.steps, found.processes) == (6, 2)


@pytest.mark.parametrize(("taken", "told"), [(0.049, False), (0.051, True)])
def test_others_that_had_the_cpu_for_a_twentieth_are_named(taken: float, told: bool) -> None:
    why = process_repeats.summarise_processes([np.full(9, 100.0), np.full(9, 120.0)], taken).unsteady
    assert why and ("other programs used the CPU" in why) == told


def test_the_last_wave_is_none_of_a_launch_that_fits() -> None:
    """1.2 waves take 2, of which 0.8 are empty: 40 %. Half a wave has no last one; two are full."""
    found = launch_traits._tail(pd.DataFrame({"waves": [1.2, 0.5, 1.0, 2.0]}))
    assert found.to_list() == pytest.approx([0.4, np.nan, np.nan, 0.0], nan_ok=True)


def test_sectors_are_unused_beyond_what_is_needed_or_asked_for() -> None:
    """80 of 100 sectors where 20 are needed; 60, where 40 requests take one at the least; stores beside that add."""
    table = pd.DataFrame({"load_sectors": [100.0, 100.0, 100.0], "load_requests": [10.0, 40.0, 10.0],
                          "load_needed_sectors": [20.0, 20.0, 20.0], "store_sectors": [np.nan, np.nan, 100.0],
                          "store_requests": [np.nan, np.nan, 10.0], "store_needed_sectors": [np.nan, np.nan, 90.0]})  # fmt: skip
    assert launch_traits._unused(table).to_list() == pytest.approx([0.8, 0.6, 0.45])
    # What only L2 sees is moved as well.
    assert launch_traits._unused(table.assign(l2_sectors=[200.0, 50.0, 400.0])).to_list() == pytest.approx(
        [0.4, 0.6, 0.225]
    )


def test_times_per_sample_are_of_all_gpus() -> None:
    """Steps of 4 samples on each of 2 times 3 GPUs, which the harness counts together."""
    assert comparison_table._items_per_step(pd.DataFrame({"items": [24, 24, 24]})) == 24


def test_a_gain_is_that_of_a_sample_without_the_drift() -> None:
    """Each process takes 1.1 times what the one before took; with the settings 0.8 times, of twice the samples: 2.5 times.

    Medians of the processes, of which those with the settings run later, would say 2.5 / 1.1.
    """
    times = [1e7 * 1.1**place * (0.8 if place % 2 else 1.0) for place in range(6)]
    rows = [{"process": place, "wall_ns": ns, "gpu_ns": ns} for place, ns in enumerate(times) for _ in range(5)]
    facts = {
        "processes": [{"side": "wide" if place % 2 else "", "batch": 8 if place % 2 else 4, "round": place // 2}
                      for place in range(6)],
        "failed": {}, "chosen": "wide", "trials": {"candidates": {"wide": ["batch=8"]}},
    }  # fmt: skip
    (found,) = trials._measured_rows(pd.DataFrame(rows), facts, 0.02)
    assert found.gain == pytest.approx(2.5) and found.processes == 3
    assert found.gain_low == pytest.approx(2.5) and found.gain_high == pytest.approx(2.5)
    assert (found.base_ns, found.ns) == (pytest.approx(1e7 * 1.1**2), pytest.approx(0.8e7 * 1.1**3))
    # Of one round there is no interval: 10 ms over 8.8 ms / 2.
    (one,) = trials._measured_rows(pd.DataFrame(rows[:10]), facts | {"processes": facts["processes"][:2]}, 0.02)
    assert one.gain == pytest.approx(2 / 0.88) and np.isnan(one.gain_low)
