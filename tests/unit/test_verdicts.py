"""verdicts: what holds cells back, by real tables of the zoo and by made ones."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tables import step_shares
from profzoo.tables.ncu_coverage import KEYS
from profzoo.tools.ncu import details_page as ncu_details
from profzoo.verdicts import advice_gain, advice_scores, ncu_advice, verdicts
from profzoo.verdicts import launch_traits as kernel_traits
from profzoo.verdicts import rule_evaluation as judged_cell
from profzoo.verdicts import rules as verdict_rules
from tests import known_rules, slow
from tests.conftest import DATA

# Rules without a trial.
UNTRIED = replace(advice_scores.load_scores(), fitted={}, held_out={})
RULES = known_rules.load()
STEPS = pd.read_csv(DATA / "zoo/steps.csv")
ROOFS = {"fp32": 50.0, "tf32": 500.0}


@pytest.fixture(scope="module")
def kernels(recording: Callable) -> pd.DataFrame:
    return pd.read_csv(recording("zoo/kernels.csv"))


@pytest.fixture(scope="module")
def judged(kernels: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on the whole zoo, without counters."""
    return verdicts.tabulate_verdicts(STEPS, kernels, None, {}, {}, {}, RULES)


def leading(judged: pd.DataFrame, model: str, phase: str) -> pd.Series:
    """A cell's first verdict."""
    mine = judged[(judged["model"] == model) & (judged["phase"] == phase) & (judged["level"] == "cell")]
    return mine[mine["rank"] == 1].iloc[0]


def made(share: dict[str, float], stretch: float = 1.0) -> pd.DataFrame:
    """A step of 1 ms with these shares of its wall time, which idles longer where nsys stretches it."""
    names = [name for name in STEPS.columns if name.endswith("_ns")]
    row = dict.fromkeys(names, 0.0) | {
        "model": "m",
        "phase": "train",
        "process": 1,
        "step_ns": 1e6,
        "step_median_ns": 1e6,
    }
    row |= {f"{name}_ns": value * 1e6 for name, value in share.items()}
    # What copies between host and device take is of what copies take.
    row["copy_ns"] += row["transfer_ns"]
    idle = sum(value for name, value in share.items() if name.startswith("idle_"))
    busy = 1 - idle
    for name in (name for name in share if name.startswith("idle_")):
        row[f"{name}_ns"] *= (stretch - busy) / idle
    row |= {"idle_ns": (stretch - busy) * 1e6, "busy_ns": busy * 1e6, "wall_ns": stretch * 1e6, "launches": 1000.0}
    row["busy_share"] = busy - share.get("waiting", 0.0)
    return pd.DataFrame([row])


def kernel_rows(**columns: list) -> pd.DataFrame:
    """Launch configurations of one cell, a hundred blocks to each of its ten multiprocessors."""
    count = len(next(iter(columns.values())))
    fixed = {"model": "m", "phase": "train", "class": "gemm", "function": "f", "grid_x": 1000, "grid_y": 1, "grid_z": 1,
             "multiprocessors": 10, "total_ns": 100.0, "mean_ns": 100.0, "launches": 1.0}  # fmt: skip
    return pd.DataFrame({name: columns.get(name, [value] * count) for name, value in fixed.items()} | columns)


def held(efficiency: list[float], bound: list[str]) -> pd.DataFrame:
    """Their rows in the table of the roofline, below that of their cell."""
    rows = pd.DataFrame({"level": "launch", "model": "m", "phase": "train", "efficiency": efficiency, "bound": bound})
    return pd.concat([rows.iloc[:1].assign(level="cell"), rows], ignore_index=True)


def test_every_cell_of_the_zoo_has_a_leading_verdict(judged: pd.DataFrame) -> None:
    first = judged[(judged["level"] == "cell") & (judged["rank"] == 1)]
    assert len(first) == 42 and not first.duplicated(["model", "phase"]).any()
    assert first["next_step"].notna().all() and first["evidence"].notna().all()


@pytest.mark.parametrize(
    ("model", "phase", "verdict"),
    [
        ("pixelrnn", "train", "launch-bound"),
        ("gpt", "inference", "launch-bound"),
        ("lstm", "inference", "input-bound"),
        ("icnet", "inference", "latency-bound (small grid)"),
        ("pixelrnn", "inference", "latency-bound (short kernels)"),
        ("vgg19", "inference", verdicts.NOTHING),
    ],
)
def test_leading_verdicts_of_real_cells(judged: pd.DataFrame, model: str, phase: str, verdict: str) -> None:
    assert leading(judged, model, phase)["verdict"] == verdict


def test_gains_are_amdahls_and_ranked(judged: pd.DataFrame) -> None:
    ours = judged[judged["cured"].notna()]
    removed = ours["verdict"] == "latency-bound (short kernels)"
    # Where the CPU limits the step, shorter kernels gain less.
    kept = ours[~removed & ours["limit"].isna()]
    assert len(kept) and np.allclose(kept["gain"], 1 / (1 - kept["value"] * kept["cured"]))
    # What launches fewer kernels also waits less for launches.
    fewer = ours[removed & ours["limit"].isna()]
    assert len(fewer) and (fewer["gain"] >= 1 / (1 - fewer["value"] * fewer["cured"]) - 1e-9).all()
    assert (ours["gain"] >= 1).all() and ours["share"].equals(ours["value"])
    decided = judged[(judged["level"] == "cell") & judged["gain"].notna()]
    for _, mine in decided.groupby(["model", "phase"]):
        assert mine["gain"].is_monotonic_decreasing


def test_shares_add_up_to_the_step() -> None:
    shares = step_shares.step_shares(STEPS)
    assert list(shares.columns) == list(step_shares.PARTS)
    assert np.allclose(shares.sum(axis=1), 1) and (shares > -1e-9).all().all()
    assert np.allclose(shares[list(step_shares.WORK)].sum(axis=1), STEPS["busy_share"])


@pytest.mark.parametrize(
    "share",
    [
        {},
        {"communication": 0.5, "overlap": 0.2, "waiting": 0.2, "idle_host": 0.2},
        {"communication": 0.6, "waiting": 0.6, "idle_input": 0.1},
        {"copy": 0.1, "transfer": 0.6, "idle_synchronisation": 0.2, "idle_latency": 0.05},
        {"transfer": 1.0},
    ],
)
@pytest.mark.parametrize("unprofiled", [0.7e6, 1e6, 1.3e6])
def test_shares_of_any_step_add_up(share: dict[str, float], unprofiled: float) -> None:
    step = made(share).assign(step_ns=unprofiled)
    step["busy_share"] = ((step["busy_ns"] - step["waiting_ns"]) / unprofiled).clip(upper=1)
    shares = step_shares.step_shares(step).iloc[0]
    assert shares.sum() == pytest.approx(1) and (shares >= -1e-12).all()
    # Without anything to go by, idleness has no cause.
    assert (shares["idle_unknown"] > 0.2) == (unprofiled > 1e6 and set(share) <= {"transfer"})


def test_the_shares_of_kernels_are_those_of_their_part_of_the_step(judged: pd.DataFrame) -> None:
    of_step = step_shares.step_shares(STEPS).set_index(pd.MultiIndex.from_frame(STEPS[["model", "phase"]]))["kernels"]
    of_kernels = judged[judged["level"] == "kernel"].drop_duplicates(["model", "phase", "class", "function"])
    sums = of_kernels.groupby(["model", "phase"])["share"].sum()
    assert len(sums) > 20 and (sums <= of_step.reindex(sums.index) + 1e-9).all()


def test_copies_are_no_kernels() -> None:
    """A step nearly all of which is copies to the host and back is not judged by its few kernels."""
    rows, roofs = kernel_rows(total_ns=[100.0]), held([0.9], ["simt"])
    step = made({"transfer": 0.97})
    table = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, RULES)
    of_cell = table[table["level"] == "cell"]
    assert of_cell["verdict"].tolist() == ["transfer-bound"] and of_cell["share"].tolist() == pytest.approx([0.97])
    assert table.loc[table["level"] == "kernel", "share"].tolist() == pytest.approx([0.03])
    table = verdicts.tabulate_verdicts(made({"copy": 0.5}), rows, roofs, ROOFS, {}, {}, RULES)
    assert table["verdict"].tolist()[:2] == ["copy-bound", "compute-bound (SIMT)"]
    assert table["share"].tolist()[:2] == pytest.approx([0.5, 0.5])


def test_kernels_that_communicate_are_neither_counted_nor_missed() -> None:
    rows = kernel_rows(**{"class": ["gemm", "communication"], "total_ns": [40.0, 960.0]})
    step = made({"communication": 0.96, "waiting": 0.9})
    table = verdicts.tabulate_verdicts(step, rows, held([0.9, float("nan")], ["simt", ""]), ROOFS, {}, {}, RULES)
    of_cell = table[table["level"] == "cell"]
    assert of_cell["verdict"].tolist() == ["imbalance-bound"] and of_cell["share"].tolist() == pytest.approx([0.9])
    step = made({"communication": 0.3})
    table = verdicts.tabulate_verdicts(step, rows, held([0.9, float("nan")], ["simt", ""]), ROOFS, {}, {}, RULES)
    found = table[table["level"] == "cell"].set_index("verdict")["share"].to_dict()
    assert found == pytest.approx({"compute-bound (SIMT)": 0.7, "communication-bound": 0.3})


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        ({"idle_input": 0.3}, "input-bound"),
        ({"idle_synchronisation": 0.3}, "synchronisation-bound"),
        ({"idle_latency": 0.1, "idle_launch": 0.1, "idle_host": 0.1}, "launch-bound"),
        ({"communication": 0.3}, "communication-bound"),
        ({"transfer": 0.3}, "transfer-bound"),
        ({"copy": 0.3}, "copy-bound"),
    ],
)
def test_what_a_step_waits_for(share: dict[str, float], verdict: str) -> None:
    table = verdicts.tabulate_verdicts(made(share), kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == [verdict]
    assert table["value"].iloc[0] == pytest.approx(0.3) and table["gain"].iloc[0] == pytest.approx(1 / 0.7)
    assert table["source"].iloc[0] and "steps.csv" in table["evidence"].iloc[0]


def test_communication_that_is_overlapped_does_not_count() -> None:
    table = verdicts.tabulate_verdicts(
        made({"communication": 0.3, "overlap": 0.25}), kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES
    )
    assert table["verdict"].tolist() == [verdicts.NOTHING]


def test_waiting_for_other_processes_is_no_communication() -> None:
    step = made({"communication": 0.6, "waiting": 0.4})
    shares = step_shares.step_shares(step).iloc[0]
    assert shares["communication"] == pytest.approx(0.2) and shares["kernels"] == pytest.approx(0.4)
    table = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == ["imbalance-bound", "communication-bound"]
    assert table["gain"].tolist() == pytest.approx([1 / 0.6, 1 / 0.8])


def test_causes_that_the_profiler_stretched_are_not_told() -> None:
    step = made({"idle_input": 0.25, "idle_host": 0.25}, stretch=3)
    table = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == [judged_cell.UNDECIDED] and table["gain"].isna().all()
    assert (
        "idle for 50% of the step; the cause is unknown, as the step takes 3.0 times as long under nsys"
        in table["next_step"].iloc[0]
    )


def test_a_cause_that_holds_whatever_the_profiler_added_is_told() -> None:
    """Idle for half of the step; of 1.6 ms under nsys an eighth for the input, which took no longer without it."""
    step = made({"idle_input": 0.0625, "idle_host": 0.4375}, stretch=2.1)
    table = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    # The input's eighth may be it all, or nothing: what remains of the half is 0.3 for sure.
    assert table["verdict"].tolist() == ["launch-bound", judged_cell.UNDECIDED]
    assert table["share"].iloc[0] == pytest.approx(0.5 - 1.6 / 8) and table["metric"].iloc[0].endswith("at least")
    assert table["gain"].iloc[0] == pytest.approx(1 / 0.7) and "idle for 20% of the step" in table["next_step"].iloc[1]


def test_causes_of_steps_that_were_disturbed_are_not_told() -> None:
    step = made({"idle_input": 0.5}).assign(step_median_ns=0.5e6)
    table = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == [judged_cell.UNDECIDED] and table["value"].tolist() == [2]
    assert "the mean of the unprofiled steps is 2.0 times their median" in table["next_step"].iloc[0]


def test_a_cause_that_holds_whatever_was_disturbed_is_told() -> None:
    """Idle by the input for 90 %; the mean is twice the median, so that of 1 ms half may be others' doing: 0.4 of 0.5 ms."""
    step = made({"idle_input": 0.9}).assign(step_median_ns=0.5e6)
    table = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES)
    assert table["verdict"].iloc[0] == "input-bound" and table["metric"].iloc[0].endswith(", at least")
    assert table["share"].iloc[0] == pytest.approx(0.8) and table["gain"].iloc[0] == pytest.approx(5)


@pytest.mark.parametrize(
    ("taken", "told", "share"),
    [
        # Of 1 ms others may have taken 0.2, all of them in the 0.5 that the GPU idles: 0.3 of 0.8 ms.
        (0.2, "input-bound", 0.375),
        # 0.05 of 0.55 ms, below the tenth of the rule.
        (0.45, judged_cell.UNDECIDED, None),
        (0.87, judged_cell.UNDECIDED, None),
        (1.0, judged_cell.UNDECIDED, None),
        # As little as that makes no steps unsteady, nor what no system tells.
        (0.05, "input-bound", 0.5),
        (float("nan"), "input-bound", 0.5),
    ],
)
def test_what_others_took_of_the_cpu_may_be_all_that_the_gpu_waited_for(taken: float, told: str, share: float) -> None:
    step = made({"idle_input": 0.5}).assign(cpu_taken_share=taken)
    first = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES).iloc[0]
    assert first["verdict"] == told
    if share is None:
        assert (first["metric"], first["value"]) == ("CPU time of other programs", taken)
        assert f"other programs used the CPU for up to {taken:.0%} of the time" in first["next_step"]
    else:
        assert first["share"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("bound", "efficiency", "verdict", "cured"),
    [
        ("dram", 0.8, "memory-bound", 0.5),
        ("l2", 0.8, "memory-bound", 0.5),
        ("simt", 0.8, "compute-bound (SIMT)", 0.9),
        ("tensor", 0.8, "compute-bound (tensor)", 0.5),
        ("simt", 0.1, "latency-bound (occupancy, tail)", 0.8),
    ],
)
def test_what_kernels_are_bound_by(bound: str, efficiency: float, verdict: str, cured: float) -> None:
    rows, roofs = kernel_rows(total_ns=[60.0, 40.0]), held([efficiency, 0.4], [bound, "dram"])
    table = verdicts.tabulate_verdicts(made({}), rows, roofs, ROOFS, {}, {}, RULES)
    cell = table[table["level"] == "cell"].iloc[0]
    assert (cell["verdict"], cell["value"], cell["cured"]) == (verdict, pytest.approx(0.6), pytest.approx(cured))
    assert cell["gain"] == pytest.approx(1 / (1 - 0.6 * cured))
    kernel = table[table["level"] == "kernel"].iloc[0]
    assert (kernel["verdict"], kernel["function"], kernel["value"]) == (verdict, "f", pytest.approx(0.6))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.6, 0.9, "memory-bound"), (0.4, 0.9, judged_cell.UNDECIDED), (0.35, 0.45, verdicts.NOTHING)],
)
def test_a_roof_within_the_interval_is_not_told(low: float, high: float, verdict: str) -> None:
    rows = kernel_rows(total_ns=[60.0, 40.0])
    middle = (low + high) / 2
    # The first row is that of the cell.
    sides = {"efficiency_low": [low, low, 0.4], "efficiency_high": [high, high, 0.4]}
    roofs = held([middle, 0.4], ["dram", "dram"]).assign(**sides)
    table = verdicts.tabulate_verdicts(made({}), rows, roofs, ROOFS, {}, {}, RULES)
    cell = table[table["level"] == "cell"].iloc[0]
    assert cell["verdict"] == verdict
    # No kernel is told to be bound by what it may not be.
    assert (table["level"] == "kernel").any() == (verdict == "memory-bound")
    if verdict == judged_cell.UNDECIDED:
        assert cell["next_step"].startswith("memory-bound: between 0% and 60% of the step") and pd.isna(cell["gain"])


def test_what_cannot_be_told_comes_by_what_it_may_gain_at_most() -> None:
    rows = kernel_rows(total_ns=[60.0, 40.0])
    sides = {"efficiency_low": [0.4] * 3, "efficiency_high": [0.9, 0.9, 0.4]}
    roofs = held([0.6, 0.4], ["dram", "dram"]).assign(**sides)
    waiting = made({"idle_input": 0.12})

    def first(host: float) -> str:
        return verdicts.tabulate_verdicts(waiting.assign(host_ns=host), rows, roofs, ROOFS, {}, {}, RULES)[
            "verdict"
        ].iloc[0]

    # Kernels that take no time at all would gain a twentieth, as the CPU has launches to make; input gains an eighth.
    assert first(0.95e6) == "input-bound"
    assert first(0.1e6) == judged_cell.UNDECIDED


def test_what_cannot_be_told_may_gain_no_more_than_its_verdict_would() -> None:
    rows = kernel_rows(total_ns=[60.0, 40.0])
    sides = {"efficiency_low": [0.4] * 3, "efficiency_high": [0.9, 0.9, 0.4]}
    roofs = held([0.6, 0.4], ["dram", "dram"]).assign(**sides)
    step = made({"idle_input": 0.36}).assign(host_ns=0.1e6)
    told = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, RULES)["verdict"].tolist()
    # Without these kernels the step would be 1.62 times as fast; with half their bytes 1.24 times, with its input 1.56.
    assert told[:2] == ["input-bound", judged_cell.UNDECIDED]


def test_shorter_kernels_gain_no_more_than_the_cpu_lets_through() -> None:
    rows, roofs = kernel_rows(total_ns=[60.0, 40.0]), held([0.8, 0.4], ["simt", "dram"])
    step = made({}).assign(host_ns=0.9e6)
    table = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, RULES, scored=UNTRIED)
    assert table["gain"].tolist() == table["limit"].tolist() == pytest.approx([1 / 0.9] * 2)
    assert table["next_step"].str.startswith(advice_gain.LAUNCH_LESS + "use tensor cores").all()
    for host, stretch in ((0.1e6, 1.0), (0.9e6, 3.0), (np.nan, 1.0)):
        free = verdicts.tabulate_verdicts(made({}, stretch).assign(host_ns=host), rows, roofs, ROOFS, {}, {}, RULES)
        assert free["gain"].iloc[0] == pytest.approx(1 / (1 - 0.6 * 0.9)) and free["limit"].isna().all()


def test_a_grid_smaller_than_the_gpu() -> None:
    rows = kernel_rows(total_ns=[50.0, 50.0], grid_x=[4, 40], function=["small", "large"])
    table = verdicts.tabulate_verdicts(made({}), rows, None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == ["latency-bound (small grid)"] * 2
    assert table["function"].dropna().tolist() == ["small"]
    # Four blocks for ten multiprocessors: the other six could have done as much beside.
    assert table["cured"].tolist() == pytest.approx([0.6, 0.6])


def test_too_few_counters_are_said() -> None:
    rows, roofs = kernel_rows(total_ns=[30.0, 70.0]), held([0.9, float("nan")], ["dram", ""])
    table = verdicts.tabulate_verdicts(made({}), rows, roofs, {}, {}, {}, RULES)
    undecided = table[table["verdict"] == judged_cell.UNDECIDED].iloc[0]
    assert undecided["value"] == pytest.approx(0.3) and "counters cover 30% of GPU time" in undecided["next_step"]


def test_advice_that_removes_launches_frees_the_cpu_of_them() -> None:
    """200 tiny kernels of 1000 launches, a third of GPU time, of a step that the CPU nearly holds back."""
    rows = kernel_rows(
        **{"class": ["elementwise", "gemm"], "function": ["tiny", "large"]},
        total_ns=[400e3, 600e3],
        mean_ns=[2000.0, 750.0],
        launches=[200.0, 800.0],
    )
    table = verdicts.tabulate_verdicts(made({}).assign(host_ns=0.95e6), rows, None, {}, {}, {}, RULES)
    first = table.iloc[0]
    assert first["verdict"] == "latency-bound (short kernels)" and first["share"] == pytest.approx(0.4)
    # The CPU makes four fifths of the launches; without that it would be 1 / 0.6, with the old ones 1 / 0.95.
    assert first["gain"] == first["limit"] == pytest.approx(1 / (0.95 * 0.8))
    free = verdicts.tabulate_verdicts(made({"idle_host": 0.2}).assign(host_ns=0.1e6), rows, None, {}, {}, {}, RULES)
    short = free[free["verdict"] == "latency-bound (short kernels)"].iloc[0]
    assert short["share"] == pytest.approx(0.8 * 0.4) and pd.isna(short["limit"])
    assert short["gain"] == pytest.approx(1 / (1 - 0.8 * 0.4 - 0.2 * 0.2))


def test_launches_that_are_removed_gain_no_idleness_that_is_in_doubt() -> None:
    rows = kernel_rows(**{"class": ["elementwise"]}, total_ns=[1.0], mean_ns=[2000.0], launches=[1000.0])
    step = made({"idle_host": 0.4, "idle_input": 0.4}, stretch=2.1)
    table = verdicts.tabulate_verdicts(step, rows, None, {}, {}, {}, RULES)
    found = table[table["level"] == "cell"]
    assert found["verdict"].tolist() == [judged_cell.UNDECIDED, "latency-bound (short kernels)"]
    assert found["gain"].iloc[1] == pytest.approx(1 / 0.8)


def test_kernels_of_little_time_are_not_judged_one_by_one() -> None:
    rows = kernel_rows(total_ns=[1.0, 99.0], grid_x=[4, 1000], function=["short", "long"])
    table = verdicts.tabulate_verdicts(made({}), rows, None, {}, {}, {}, RULES)
    assert not (table["level"] == "kernel").any()


def advised(recording: Callable, times: list[float]) -> pd.DataFrame:
    """ncu's advice on the recorded launches, whose configurations take these times of the step, one after another."""
    details = ncu_details.read_details(recording("ncu/launch.details.csv"))
    ids = details["ID"].drop_duplicates().to_list()
    launches = pd.DataFrame({"id": ids}).assign(**dict.fromkeys(KEYS, 1))
    launches["mangled"] = [f"k{number}" for number in ids]
    total = (times + [0.0] * len(ids))[: len(ids)]
    rows = kernel_rows(total_ns=total).assign(**{key: launches[key] for key in KEYS})
    table = verdicts.tabulate_verdicts(made({}), rows, None, {}, {("m", "train"): (details, launches)}, {}, RULES)
    return table[table["by"] == ncu_advice.TOOL]


@pytest.mark.parametrize("most", slow.first([2, None]))
def test_advice_of_ncu_counts_by_what_it_is_worth_to_the_step(recording: Callable, most: int | None) -> None:
    details = ncu_details.read_details(recording("ncu/launch.details.csv"))
    said = details[details["Rule Type"].eq("OPT") & details["Estimated Speedup"].gt(0)]
    assert said["ID"].nunique() > 1
    for number, one in islice(said.groupby("ID"), most):
        ids = details["ID"].drop_duplicates().to_list()
        found = advised(recording, [90.0 if other == number else 10.0 / (len(ids) - 1) for other in ids])
        assert 0 < len(found) <= ncu_advice.MAX_ROWS and (found["level"] == "kernel").all()
        saved = found["share"] * found["value"]
        assert saved.is_monotonic_decreasing
        first = found.iloc[0]
        assert first["share"] == pytest.approx(0.9) and first["value"] == one["Estimated Speedup"].max()
        assert first["evidence"] == f"ncu-details.csv: launch {number}"
        if "global" in first["metric"]:
            assert first["gain"] == pytest.approx(1 / (1 - 0.9 * first["value"] / 100))
        assert found.loc[found["metric"].str.contains("local"), "gain"].isna().all()


def test_ncu_that_estimates_no_speed_up_has_no_verdicts(recording: Callable) -> None:
    details = ncu_details.read_details(recording("ncu/launch.details.csv"))
    none = details.assign(**{"Estimated Speedup": np.nan})
    launches = pd.DataFrame({"id": details["ID"].drop_duplicates()}).assign(**dict.fromkeys(KEYS, 1))
    rows = kernel_rows(total_ns=[100.0]).assign(**dict.fromkeys(KEYS, 1))
    assert len(none) and ncu_advice.tabulate_ncu_advice(none, launches, rows, 0.5) == []


@pytest.mark.parametrize(("printed", "value"), [("1,234.5", 1234.5), ("12.5", 12.5)])
def test_speed_ups_of_ncu_are_read_whatever_their_size(tmp_path: Path, printed: str, value: float) -> None:
    launches = pd.DataFrame({"id": [0]}).assign(**dict.fromkeys(KEYS, 1))
    page = tmp_path / "d.csv"
    details = pd.DataFrame({"ID": [0, 0], "Kernel Name": "f()", "Rule Type": "OPT", "Rule Name": "R", "Section Name": "S",
                            "Rule Description": "do", "Estimated Speedup Type": "local", "Metric Value": "",
                            "Estimated Speedup": [printed, None]})  # fmt: skip
    write_csv(details, page)
    rows = kernel_rows(total_ns=[100.0]).assign(**dict.fromkeys(KEYS, 1))
    (found,) = ncu_advice.tabulate_ncu_advice(ncu_details.read_details(page), launches, rows, 0.5)
    assert (found.value, found.share, found.gain) == (value, 0.5, None)
    write_csv(details.assign(**{"Estimated Speedup": ["12,5", None]}), page)
    with pytest.raises(DataError, match=r"d\.csv: column Estimated Speedup holds '12,5'"):
        ncu_details.read_details(page)


def test_without_a_trace_there_is_nothing_to_judge() -> None:
    table = verdicts.tabulate_verdicts(STEPS[:0], pd.DataFrame(columns=["model", "phase"]), None, {}, {}, {}, RULES)
    assert table.empty and list(table.columns) == verdicts.COLUMNS


@pytest.mark.parametrize(
    ("data_ns", "settings", "advice"), [(5e6, "workers=4 pin_memory=true", "workers: 2"), (3e5, None, "a larger batch")]
)
def test_workers_are_advised_where_they_hand_batches_over_faster(
    data_ns: float, settings: str | None, advice: str
) -> None:
    step = made({"idle_input": 0.3}).assign(cpu_data_ns=data_ns)
    found = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, {}, {}, {}, RULES).iloc[0]
    assert (found["verdict"], found["settings"]) == ("input-bound", settings)
    assert advice in found["next_step"]


@pytest.mark.parametrize(
    ("share", "bound", "ran_with", "settings", "says"),
    [
        ({}, "dram", {"precision": "fp32"}, "precision=bf16", "bf16 halves them"),
        ({}, "dram", {"precision": "bf16"}, None, "compile: true fuses"),
        ({}, "simt", {"precision": "fp32"}, "precision=tf32", "use tensor cores"),
        ({}, "simt", {"precision": "tf32"}, None, "do not use tensor cores"),
        ({}, "tensor", {"precision": "tf32"}, "precision=bf16", "narrower operands"),
        ({}, "tensor", {"precision": "bf16"}, None, "limit for 16-bit operands"),
        ({"idle_input": 0.5}, "", {"workers": 0}, "workers=4 pin_memory=true", "workers: 2"),
        ({"idle_input": 0.5}, "", {"workers": 4, "pin_memory": True}, None, "more worker processes"),
        ({"transfer": 0.5}, "", {"pin_memory": False}, "pin_memory=true", "from pinned memory"),
        ({"transfer": 0.5}, "", {"pin_memory": True}, None, "move less data between host and GPU"),
        ({"idle_host": 0.5}, "", {"compile": False}, "graph=true", "as one CUDA graph"),
        ({"idle_host": 0.5}, "", {"compile": False, "graph": True}, None, "or try compile: true"),
        ({"idle_host": 0.5}, "", {"compile": True}, None, "without compile"),
    ],
)
def test_a_cell_is_not_advised_what_it_does(
    share: dict[str, float], bound: str, ran_with: dict, settings: str | None, says: str
) -> None:
    step = made(share).assign(cpu_data_ns=5e6, cpu_transfer_ns=5e6)
    rows, roofs = kernel_rows(total_ns=[100.0]), held([0.8 if bound else float("nan")], [bound])
    found = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {("m", "train"): ran_with}, RULES).iloc[0]
    assert found["settings"] == settings and says in found["next_step"]
    assert (found["gain"] == 1) == ("limit for 16-bit operands" in says)


@pytest.mark.slow
def test_traits_exclude_each_other(kernels: pd.DataFrame) -> None:
    for _, mine in kernels.groupby(["model", "phase"]):
        traits = kernel_traits.mark_traits(mine, None, RULES["traits"], {})
        whole = mine.loc[mine["class"] != "communication", "total_ns"].sum()
        names = verdict_rules.SHARES["kernels"]
        assert sum(traits[f"{name}_ns"].sum() for name in names) <= whole * (1 + 1e-9)
        assert (traits[[f"{name}_ns" for name in names]].gt(0).sum(axis=1) <= 1).all()
