"""Numbers worked out by hand, of comparisons, repeats, replays and causes: small inputs that leave one answer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import comparison_table, contributions, energy
from profzoo.compare.contributions import KERNEL_LEVEL, TracedCell
from profzoo.statistics import process_repeats
from profzoo.tables.ncu_coverage import KEYS
from profzoo.trials import trial_table as trials
from profzoo.verdicts import launch_causes
from profzoo.what_if import changes, communication_overlap, dependencies, host_time, predicted_gains, program, simulator
from tests.unit.compared import STEPS
from tests.unit.test_what_if import LAUNCH, Act, of, steps


def test_energy_is_of_the_counter_where_both_sides_have_one() -> None:
    """Of a counter 4 and 2 J, by power 9 and 9; where one side has no counter, by power."""
    both = {"item_energy_counter_j": [4.0, 4.0], "item_energy_power_j": [9.0, 9.0]}
    other = {"item_energy_counter_j": [2.0, 2.0], "item_energy_power_j": [9.0, 9.0]}
    found = energy.compare_energies(both, other)
    assert (found["baseline_item_j"], found["candidate_item_j"]) == (4, 2) and found["energy_ratio"] == pytest.approx(
        0.5
    )
    assert energy.compare_energies(both, {"item_energy_power_j": [3.0]})["energy_ratio"] == pytest.approx(1 / 3)
    assert np.isnan(
        energy.compare_energies({"item_energy_counter_j": [4.0]}, {"item_energy_power_j": [3.0]})["energy_ratio"]
    )


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


def test_variance_between_processes_of_unlike_lengths() -> None:
    """Logarithms 0, 2 and 3, 5, 4, 4: means 1 and 4, of all 3. Within: (1+1+1+1+0+0) / 4 = 1. Among: 2 * 4 + 4 * 1 = 12.

    A typical process has (6 - (4 + 16) / 6) / 1 = 8/3 steps, so that 11 / (8/3) = 33/8 lies between, 33/41 of the whole.
    """
    given = [np.exp([0.0, 2.0]), np.exp([3.0, 5.0, 4.0, 4.0])]
    assert process_repeats.between_process_share(given) == pytest.approx(33 / 41)
    # Means no farther apart than steps are by themselves: nothing lies between, and not less than that.
    assert process_repeats.between_process_share([np.exp([0.0, 2.0]), np.exp([0.0, 2.0])]) == 0


def test_repeats_are_of_processes_and_quartiles_of_steps() -> None:
    """Means 2 and 6, medians 1 and 6; of 1, 1, 4, 4, 6, 8 the quartiles are 1.75 and 5.5."""
    found = process_repeats.summarise_processes([np.array([1.0, 1.0, 4.0]), np.array([4.0, 6.0, 8.0])])
    assert (found.mean_ns, found.median_ns, found.lower_quartile_ns, found.upper_quartile_ns) == (4, 3.5, 1.75, 5.5)
    assert (found.steps, found.processes) == (6, 2)


@pytest.mark.parametrize(
    ("given", "unsteady"),
    [
        # Each limit, just below and just above: processes, the middle half, the second half, the mean.
        ([np.full(9, 100.0), np.full(9, 104.9)], False),
        ([np.full(9, 100.0), np.full(9, 105.1)], True),
        ([np.array([95.1, 100.0, 104.9] * 6)], False),
        ([np.array([94.9, 100.0, 105.1] * 6)], True),
        ([np.repeat([100.0, 104.9], 10)], False),
        ([np.repeat([100.0, 105.1], 10)], True),
        ([np.array([100.0] * 19 + [690.0])], False),
        ([np.array([100.0] * 19 + [710.0])], True),
    ],
)
def test_limits_of_what_is_steady(given: list[np.ndarray], unsteady: bool) -> None:
    assert (process_repeats.summarise_processes(given).unsteady is not None) == unsteady


@pytest.mark.parametrize(("taken", "told"), [(0.049, False), (0.051, True)])
def test_others_that_had_the_cpu_for_a_twentieth_are_named(taken: float, told: bool) -> None:
    why = process_repeats.summarise_processes([np.full(9, 100.0), np.full(9, 120.0)], taken).unsteady
    assert why and ("other programs used the CPU" in why) == told


@pytest.mark.parametrize(
    ("seen", "of_steps", "rare"), [(2, 5, True), (3, 5, False), (2, 4, False), (1, 4, True), (1, 3, False)]
)
def test_what_less_than_half_of_the_steps_have_is_unrepeated(
    tmp_path: Path, seen: int, of_steps: int, rare: bool
) -> None:
    acts = steps([LAUNCH, replace(LAUNCH, group=3)], of_steps)
    kept = [act for act in acts if not (act.group == 3 and act.step >= seen)]
    found = changes.find_unrepeated(of(tmp_path, kept))
    assert found.sum() == (seen if rare else 0)


def test_communication_waits_for_what_was_before_it_and_not_for_itself(tmp_path: Path) -> None:
    """Kernel, kernel, communication, communication, kernel of one stream: both wait for the second kernel of all."""
    talks = replace(LAUNCH, group=-1)
    found = communication_overlap.overlap_communication(of(tmp_path, steps([LAUNCH, LAUNCH, talks, talks, LAUNCH])))
    assert found.gpu["dep"].to_list()[:5] == [-1, -1, 1, 1, -1]
    # What a program begins with waits for nothing.
    first = communication_overlap.overlap_communication(of(tmp_path, steps([talks, LAUNCH]), "first.sqlite"))
    assert first.gpu["dep"].to_list()[:3] == [-1, -1, 1]
    assert first.gpu["stream"].to_list()[:2] == [communication_overlap.APART, 7]
    # The first of all operations is one to wait for, and so it stays where a communication waits for it already.
    made = of(tmp_path, steps([LAUNCH, talks, LAUNCH, talks]), "second.sqlite")
    assert communication_overlap.overlap_communication(made).gpu["dep"].to_list()[:4] == [-1, 0, -1, 2]
    told = program.replace_tables(made, gpu={"dep": np.where(np.arange(len(made.gpu)) == 3, 0, -1)})
    assert communication_overlap.overlap_communication(told).gpu["dep"].to_list()[:4] == [-1, 0, -1, 0]


def test_an_operator_may_take_what_is_far_out_among_all(tmp_path: Path) -> None:
    """100 to 300 us before each launch, quartiles 150 and 250: 550 are an operator's at most, of 2 ms that one takes."""
    often = [replace(LAUNCH, before=ns, call=0.0) for ns in (100e3, 150e3, 200e3, 250e3, 300e3)] * 20
    made = of(tmp_path, steps([*often, replace(LAUNCH, before=2e6, call=0.0)], 1))
    share = changes._of_operators(made)
    last = np.flatnonzero(made.host["launches"])[-1]
    assert share[last] == pytest.approx(550e3 / 2e6, rel=0.01)


def test_a_step_ends_before_another_begins_and_that_before_a_call() -> None:
    calls = pd.DataFrame(
        {"start": [100], "end": [150], "correlation": [1], "thread": [2], "name": ["cudaLaunchKernel"]}
    )
    marks = pd.DataFrame({"start": [0, 100], "end": [100, 200]})
    kinds = program._ordered(calls, marks)["kind"].to_list()
    assert kinds == [program.BEGIN, program.END, program.BEGIN, program.CALL, program.END]


def test_the_first_step_is_not_among_those_that_count(tmp_path: Path) -> None:
    """Launches of 6 us: five of them in the first step, one in the second, three in each of the others: seven in three."""
    counts = (5, 1, 3, 3)
    acts = []
    for step, count in enumerate(counts):
        acts += [Act("begin", step), *([replace(LAUNCH, step=step)] * count), Act("end", step)]
    found = host_time.host_time_parts(of(tmp_path, acts))
    assert found["steps"] == 3 and found["launch_ns"] == pytest.approx(7 / 3 * 6e3, abs=1)
    assert found["framework_ns"] == pytest.approx(7 / 3 * 5e3, abs=1)
    # A single step counts.
    (one,) = [host_time.host_time_parts(of(tmp_path, [Act("begin", 0), LAUNCH, Act("end", 0)], "one.sqlite"))]
    assert one["steps"] == 1 and one["launch_ns"] == pytest.approx(6e3, abs=1)


def test_the_interval_of_a_gain_is_of_a_ratio_of_sums() -> None:
    """30, 32, 28 over 20, 20, 20: 1.5; what is left is 0, 2, -2, so that it deviates by sqrt(8 / 6) / 30 = 0.03849.

    Student's t of 2 degrees of freedom is 2.91999 for 90 %, and 4.30265 for 95 %.
    """
    before, after = np.array([30.0, 32.0, 28.0]), np.full(3, 20.0)
    found = predicted_gains.gain_of_steps(before, after)
    assert (found.gain, found.step_ns, found.predicted_ns) == (1.5, 30, 20)
    assert np.log(found.high / 1.5) == pytest.approx(2.91999 * 0.0384900, rel=1e-5)
    assert np.log(found.low / 1.5) == pytest.approx(-2.91999 * 0.0384900, rel=1e-5)
    wider = predicted_gains.gain_of_steps(before, after, confidence=0.95)
    assert np.log(wider.high / 1.5) == pytest.approx(4.30265 * 0.0384900, rel=1e-5)
    # Errors of gains and spread of steps add as squares: 0.11239 and the logarithm of 1.2.
    wrong = predicted_gains.gain_of_steps(before, after, error=0.2)
    assert np.log(wrong.high / 1.5) == pytest.approx(np.hypot(0.112390, 0.182322), rel=1e-4)


def test_what_no_trace_tells_is_that_of_a_recorded_step(tmp_path: Path) -> None:
    """One launch: no five operations tell how long the way to the GPU is, or between operations."""
    made = of(tmp_path, [Act("begin", 0), replace(LAUNCH, after=1234), Act("end", 0)])
    assert (dependencies.AFTER_NS, dependencies.GAP_NS, dependencies.LAG_NS, dependencies.FEW) == (
        1_800,
        1_100,
        2_200,
        5,
    )
    assert made.gpu["gap"].tolist() == [1_100]
    # Five tell: what they have is taken.
    (walls,) = simulator.step_times(made, simulator.simulate(made)).tolist()
    assert walls == pytest.approx(5e3 + 6e3 + 1234 + 4e3, abs=2)


def test_the_last_wave_is_none_of_a_launch_that_fits() -> None:
    """1.2 waves take 2, of which 0.8 are empty: 40 %. Half a wave has no last one; two are full."""
    found = launch_causes._tail(pd.DataFrame({"waves": [1.2, 0.5, 1.0, 2.0]}))
    assert found.to_list() == pytest.approx([0.4, np.nan, np.nan, 0.0], nan_ok=True)


def test_sectors_are_unused_beyond_what_is_needed_or_asked_for() -> None:
    """80 of 100 sectors where 20 are needed; 60, where 40 requests take one at the least; stores beside that add."""
    table = pd.DataFrame({"load_sectors": [100.0, 100.0, 100.0], "load_requests": [10.0, 40.0, 10.0],
                          "load_needed_sectors": [20.0, 20.0, 20.0], "store_sectors": [np.nan, np.nan, 100.0],
                          "store_requests": [np.nan, np.nan, 10.0], "store_needed_sectors": [np.nan, np.nan, 90.0]})  # fmt: skip
    assert launch_causes._unused(table).to_list() == pytest.approx([0.8, 0.6, 0.45])
    # What only L2 sees is moved as well.
    assert launch_causes._unused(table.assign(l2_sectors=[200.0, 50.0, 400.0])).to_list() == pytest.approx(
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
