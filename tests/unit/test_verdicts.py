"""The table of verdicts: what holds cells back, by real tables of the zoo and by made ones, in which order."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_tables
from profzoo.tables.kernel_table import KEYS
from profzoo.tools.ncu import raw_page as ncu_details
from profzoo.tools.ncu.raw_page import SPEEDUP
from profzoo.verdicts import advice_scores
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.causes.verdicts import LOGGING, NOTHING, advise_logging, find_logged
from profzoo.verdicts.gain_models import FUSED, GRAPH, CellSimulation, RequestedChange
from profzoo.verdicts.rules import rule_evaluation
from profzoo.verdicts.rules.cell_facts import CellFacts
from profzoo.verdicts.rules.feasibility import Feasibility
from profzoo.verdicts.rules.step_quality import SYNCHRONISATION
from profzoo.verdicts.verdict import UNDECIDED, Verdict
from tests import known_rules, launched, simulated_waits, slow
from tests.conftest import DATA
from tests.known_rules import a_verdict
from tests.simulated_waits import operator

# Rules without a trial, whose intervals are told however wide they are.
UNTRIED = replace(advice_scores.load_scores(), fitted={}, held_out={}, widest=np.inf)
RULES = known_rules.load()
# Without the rules about single causes of slow launches, which take most of the time.
CAUSES = RULES["traits"]["causes"]
PLAIN = {**RULES, "traits": {**RULES["traits"], "causes": {}},
         "rules": [rule for rule in RULES["rules"] if rule["share"] not in CAUSES]}  # fmt: skip
STEPS = pd.read_csv(DATA / "zoo/steps.csv")
ROOFS = {"fp32": 50.0, "tf32": 500.0}
# Real cells and their first verdicts.
LEADING = {
    ("gpt", "inference"): "launch-bound", ("lstm", "inference"): "input-bound", ("vgg19", "inference"): NOTHING,
    ("icnet", "inference"): "latency-bound (small grid)", ("pixelrnn", "inference"): "latency-bound (short kernels)",
}  # fmt: skip


def steps_of(*cells: tuple[str, str]) -> pd.DataFrame:
    return STEPS[[cell in cells for cell in zip(STEPS["model"], STEPS["phase"], strict=True)]]


@pytest.fixture(scope="module")
def kernels(recording: Callable) -> pd.DataFrame:
    return pd.read_csv(recording("zoo/kernels.csv"))


@pytest.fixture(scope="module")
def judged(kernels: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on some real cells, without counters."""
    return verdicts.tabulate_verdicts(steps_of(*LEADING), kernels, None, {}, {}, {}, RULES)


def made(share: dict[str, float], stretch: float = 1.0) -> pd.DataFrame:
    """A step of 1 ms with these shares of its wall time, which idles longer where nsys stretches it."""
    names = [name for name in STEPS.columns if name.endswith("_ns")]
    row: dict[str, Any] = dict.fromkeys(names, 0.0) | {"model": "m", "phase": "train", "process": 1}
    row |= {"step_ns": 1e6, "step_median_ns": 1e6} | {f"{name}_ns": value * 1e6 for name, value in share.items()}
    # What copies between host and device take is of what copies take.
    row["copy_ns"] += row["transfer_ns"]
    idle = sum(value for name, value in share.items() if name.startswith("idle_"))
    busy = 1 - idle
    for name in (name for name in share if name.startswith("idle_")):
        row[f"{name}_ns"] *= (stretch - busy) / idle
    row |= {"idle_ns": (stretch - busy) * 1e6, "busy_ns": busy * 1e6, "wall_ns": stretch * 1e6, "launches": 1000.0}
    row["busy_share"] = busy - share.get("waiting", 0.0)
    return pd.DataFrame([row])


def kernel_rows(**columns: Any) -> pd.DataFrame:
    """Launch configurations of one cell, a hundred blocks to each of its ten multiprocessors."""
    count = len(next(iter(columns.values())))
    fixed = {"model": "m", "phase": "train", "class": "gemm", "function": "f", "grid_x": 1000, "grid_y": 1, "grid_z": 1,
             "multiprocessors": 10, "total_ns": 100.0, "mean_ns": 100.0, "launches": 1.0}  # fmt: skip
    return pd.DataFrame({name: columns.get(name, [value] * count) for name, value in fixed.items()} | columns)


def held(efficiency: list[float], bound: list[str]) -> pd.DataFrame:
    """Their rows in the table of the roofline, below that of their cell."""
    rows = pd.DataFrame({"level": "launch", "model": "m", "phase": "train", "efficiency": efficiency, "bound": bound})
    return pd.concat([rows.iloc[:1].assign(level="cell"), rows], ignore_index=True)


def between(low: float, high: float) -> pd.DataFrame:
    """A launch whose share of DRAM's roof is in this interval, and one that is far from it."""
    sides = {"efficiency_low": [low, low, 0.4], "efficiency_high": [high, high, 0.4]}
    return held([(low + high) / 2, 0.4], ["dram", "dram"]).assign(**sides)


def table(
    step: pd.DataFrame, rows: pd.DataFrame | None = None, roofs: pd.DataFrame | None = None, **given: Any
) -> pd.DataFrame:
    """The verdicts on a cell, by default of one kernel that nothing is known of."""
    rows, more = kernel_rows(total_ns=[1.0]) if rows is None else rows, {"scored": UNTRIED, **given}
    found = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, more.pop("rules", PLAIN), **more)
    return known_rules.keep_to_amdahl(found)


def test_leading_verdicts_of_real_cells(judged: pd.DataFrame) -> None:
    first = judged[(judged["level"] == "cell") & (judged["rank"] == 1)]
    assert first.set_index(["model", "phase"])["verdict"].to_dict() == LEADING
    assert first["next_step"].notna().all() and first["evidence"].notna().all()
    for _, mine in judged[(judged["level"] == "cell") & judged["gain"].notna()].groupby(["model", "phase"]):
        assert mine["gain"].is_monotonic_decreasing


@pytest.mark.slow
def test_every_cell_of_the_zoo_has_a_leading_verdict(kernels: pd.DataFrame) -> None:
    found = verdicts.tabulate_verdicts(STEPS, kernels, None, {}, {}, {}, RULES)
    first = found[(found["level"] == "cell") & (found["rank"] == 1)]
    assert len(first) == 42 and not first.duplicated(["model", "phase"]).any()


def test_shares_add_up_to_the_step() -> None:
    shares = cell_tables.step_shares(STEPS)
    assert list(shares.columns) == list(cell_tables.PARTS)
    assert np.allclose(shares.sum(axis=1), 1) and (shares > -1e-9).all().all()
    assert np.allclose(shares[list(cell_tables.WORK)].sum(axis=1), STEPS["busy_share"])


def test_copies_are_no_kernels() -> None:
    """A step nearly all of which is copies to the host and back is not judged by its few kernels."""
    given = kernel_rows(total_ns=[100.0]), held([0.9], ["simt"])
    found = table(made({"transfer": 0.97}), *given)
    of_cell = found[found["level"] == "cell"]
    assert of_cell["verdict"].tolist() == ["transfer-bound"] and of_cell["share"].tolist() == pytest.approx([0.97])
    assert found.loc[found["level"] == "kernel", "share"].tolist() == pytest.approx([0.03])
    found = table(made({"copy": 0.5}), *given)
    assert found["verdict"].tolist()[:2] == ["copy-bound", "compute-bound (SIMT)"]
    assert found["share"].tolist()[:2] == pytest.approx([0.5, 0.5])


def test_kernels_that_communicate_are_neither_counted_nor_missed() -> None:
    rows = kernel_rows(**{"class": ["gemm", "communication"], "total_ns": [40.0, 960.0]})
    roofs = held([0.9, float("nan")], ["simt", ""])
    for share, right in (
        ({"communication": 0.96, "waiting": 0.9}, {"imbalance-bound": 0.9}),
        ({"communication": 0.3}, {"compute-bound (SIMT)": 0.7, "communication-bound": 0.3}),
    ):
        found = table(made(share), rows, roofs).query("level == 'cell'")
        assert found.set_index("verdict")["share"].to_dict() == pytest.approx(right)


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
    (found,) = table(made(share)).to_dict("records")
    assert (found["verdict"], found["value"], found["gain"]) == (verdict, pytest.approx(0.3), pytest.approx(1 / 0.7))
    assert found["source"] and "steps.csv" in found["evidence"]


def test_communication_that_is_overlapped_or_waits_for_other_processes_does_not_count() -> None:
    assert table(made({"communication": 0.3, "overlap": 0.25}))["verdict"].tolist() == [NOTHING]
    step = made({"communication": 0.6, "waiting": 0.4})
    shares = cell_tables.step_shares(step).iloc[0]
    assert shares["communication"] == pytest.approx(0.2) and shares["kernels"] == pytest.approx(0.4)
    found = table(step)
    assert found["verdict"].tolist() == ["imbalance-bound", "communication-bound"]
    assert found["gain"].tolist() == pytest.approx([1 / 0.6, 1 / 0.8])


@pytest.mark.parametrize(
    ("step", "value", "said"),
    [
        (made({"idle_input": 0.25, "idle_host": 0.25}, stretch=3), 3,
         "idle for 50% of the step; the cause is unknown, as the step takes 3.0 times as long under nsys"),
        (made({"idle_input": 0.5}).assign(step_median_ns=0.5e6), 2,
         "the mean of the unprofiled steps is 2.0 times their median"),
        # Others may have taken 0.45 of 1 ms, all of them in the half that the GPU idles: 0.05 of 0.55 ms are left.
        (made({"idle_input": 0.5}).assign(cpu_taken_share=0.45), 0.45, "other programs used the CPU for up to 45% of the time"),
    ],
)  # fmt: skip
def test_causes_that_the_profiler_stretched_or_others_disturbed_are_not_told(
    step: pd.DataFrame, value: float, said: str
) -> None:
    (found,) = table(step).to_dict("records")
    assert (found["verdict"], found["value"]) == (UNDECIDED, pytest.approx(value)) and pd.isna(found["gain"])
    assert said in found["next_step"]


def test_a_cause_that_holds_whatever_the_profiler_added_is_told() -> None:
    """Idle for half of the step; of 1.6 ms under nsys an eighth for the input, which took no longer without it."""
    found = table(made({"idle_input": 0.0625, "idle_host": 0.4375}, stretch=2.1))
    # The input's eighth may be it all, or nothing: what remains of the half is 0.3 for sure.
    assert found["verdict"].tolist() == ["launch-bound", UNDECIDED]
    assert found["share"].iloc[0] == pytest.approx(0.5 - 1.6 / 8) and found["metric"].iloc[0].endswith(", at least")
    assert found["gain"].iloc[0] == pytest.approx(1 / 0.7) and "idle for 20% of the step" in found["next_step"].iloc[1]


@pytest.mark.parametrize(
    ("bound", "efficiency", "verdict", "cured"),
    [
        ("l2", 0.8, "memory-bound", 0.5),
        ("simt", 0.8, "compute-bound (SIMT)", 0.9),
        ("tensor", 0.8, "compute-bound (tensor)", 0.5),
        ("simt", 0.1, "latency-bound (occupancy, tail)", 0.8),
    ],
)
def test_what_kernels_are_bound_by(bound: str, efficiency: float, verdict: str, cured: float) -> None:
    found = table(made({}), kernel_rows(total_ns=[60.0, 40.0]), held([efficiency, 0.4], [bound, "dram"]))
    cell, kernel = (found[found["level"] == level].iloc[0] for level in ("cell", "kernel"))
    assert (cell["verdict"], cell["value"], cell["cured"]) == (verdict, pytest.approx(0.6), pytest.approx(cured))
    assert cell["gain"] == pytest.approx(1 / (1 - 0.6 * cured))
    assert (kernel["verdict"], kernel["function"], kernel["value"]) == (verdict, "f", pytest.approx(0.6))


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.6, 0.9, "memory-bound"), (0.4, 0.9, UNDECIDED), (0.35, 0.45, NOTHING)]
)
def test_a_roof_within_the_interval_is_not_told(low: float, high: float, verdict: str) -> None:
    found = table(made({}), kernel_rows(total_ns=[60.0, 40.0]), between(low, high))
    cell = found[found["level"] == "cell"].iloc[0]
    assert cell["verdict"] == verdict
    # No kernel is told to be bound by what it may not be.
    assert (found["level"] == "kernel").any() == (verdict == "memory-bound")
    if verdict == UNDECIDED:
        assert cell["next_step"].startswith("memory-bound: between 0% and 60% of the step") and pd.isna(cell["gain"])


def test_what_cannot_be_told_comes_by_what_it_may_gain_at_most() -> None:
    """Kernels that take no time would gain a twentieth with launches to make, or 1.62; half their bytes gain 1.24."""
    for idle, host, right in ((0.12, 0.95e6, False), (0.12, 0.1e6, True), (0.36, 0.1e6, False)):
        step = made({"idle_input": idle}).assign(host_ns=host)
        found = table(step, kernel_rows(total_ns=[60.0, 40.0]), between(0.4, 0.9))["verdict"].tolist()
        assert found[:2] == ([UNDECIDED, "input-bound"] if right else ["input-bound", UNDECIDED])


def test_shorter_kernels_gain_no_more_than_the_cpu_lets_through() -> None:
    rows, roofs = kernel_rows(total_ns=[60.0, 40.0]), held([0.8, 0.4], ["simt", "dram"])
    found = table(made({}).assign(host_ns=0.9e6), rows, roofs)
    assert found["gain"].tolist() == found["limit"].tolist() == pytest.approx([1 / 0.9] * 2)
    assert found["next_step"].str.startswith(rule_evaluation.LAUNCH_LESS + "use tensor cores").all()
    free = table(made({}, 3.0).assign(host_ns=0.9e6), rows, roofs)
    assert free["gain"].iloc[0] == pytest.approx(1 / (1 - 0.6 * 0.9)) and free["limit"].isna().all()


def test_a_grid_smaller_than_the_gpu() -> None:
    found = table(made({}), kernel_rows(total_ns=[50.0, 50.0], grid_x=[4, 40], function=["small", "large"]))
    assert found["verdict"].tolist() == ["latency-bound (small grid)"] * 2
    assert found["function"].dropna().tolist() == ["small"]
    # Four blocks for ten multiprocessors: the other six could have done as much beside.
    assert found["cured"].tolist() == pytest.approx([0.6, 0.6])


def test_launches_that_are_removed_gain_no_idleness_that_is_in_doubt() -> None:
    rows = kernel_rows(**{"class": ["elementwise"]}, total_ns=[1.0], mean_ns=[2000.0], launches=[1000.0])
    found = table(made({"idle_host": 0.4, "idle_input": 0.4}, stretch=2.1), rows).query("level == 'cell'")
    assert found["verdict"].tolist() == [UNDECIDED, "latency-bound (short kernels)"]
    assert found["gain"].iloc[1] == pytest.approx(1 / 0.8)


def test_launches_that_go_take_their_waits_along() -> None:
    """Short launches have 0.3 of the step and 250 of 1,000; a quarter of the 0.4 that waits for launches goes with them."""
    rows = kernel_rows(total_ns=[20.0, 30.0, 50.0], mean_ns=[1e3, 1e3, 1e5], launches=[100.0, 150.0, 750.0])
    rows["class"] = ["elementwise", "elementwise", "gemm"]
    found = table(made({"idle_host": 0.4}), rows).query("level == 'cell'").set_index("verdict")
    assert found.loc["latency-bound (short kernels)", "gain"] == pytest.approx(1 / (1 - 0.3 - 0.1))
    assert found.loc["launch-bound", "gain"] == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(("share", "held_back"), [(0.0999, False), (0.1, True)])
def test_rules_hold_from_their_threshold_on(share: float, held_back: bool) -> None:
    assert (table(made({"idle_input": share}))["verdict"].iloc[0] == "input-bound") == held_back


@pytest.mark.parametrize("part", [10.0, 9.99])
def test_rules_about_kernels_hold_from_their_threshold_on(part: float) -> None:
    """A tenth of a step that is all kernels, and a little less; so does what may reach it."""
    rows = kernel_rows(total_ns=[part, 100 - part])
    for roofs, verdict in ((held([0.8, 0.4], ["dram", "dram"]), "memory-bound"), (between(0.4, 0.9), UNDECIDED)):
        assert table(made({}), rows, roofs)["verdict"].iloc[0] == (verdict if part == 10 else NOTHING)


def test_idleness_that_is_sure_is_not_undecided() -> None:
    """Half of a steady step idles for no cause that is known, as its GPU never did so under nsys."""
    assert table(made({}).assign(busy_share=0.5))["verdict"].tolist() == [NOTHING]
    # In doubt, a tenth that is not told is undecided, and less is not.
    for idle, verdict in ((0.1001, UNDECIDED), (0.0999, NOTHING)):
        assert table(made({}).assign(busy_share=1 - idle, step_median_ns=0.5e6))["verdict"].tolist() == [verdict]
    # Of rules of a tenth but for one of 0.3, 0.15 may hold one.
    lower = [one | {"at_least": 0.3} if one["verdict"] == "input-bound" else one for one in PLAIN["rules"]]
    found = table(made({}).assign(busy_share=0.85, step_median_ns=0.5e6), rules={**PLAIN, "rules": lower})
    assert found["verdict"].tolist() == [UNDECIDED]


def test_kernels_are_judged_from_a_fiftieth_of_the_step_on() -> None:
    """Kernels of 2 and 1.99 of 100 at a roof: the one is named, the other is not. Half of its time has to have the trait."""
    rows = kernel_rows(total_ns=[2.0, 1.99, 1.5, 1.51, 93.0], function=["a", "b", "c", "c", "d"])
    found = table(made({}), rows, held([0.8, 0.8, 0.8, 0.4, 0.4], ["dram"] * 5))
    assert found.loc[found["level"] == "kernel", "function"].tolist() == ["a"]
    found = table(made({}), rows, held([0.8, 0.8, 0.4, 0.8, 0.4], ["dram"] * 5))
    named = found.query("level == 'kernel'").set_index("function")
    assert list(named.index) == ["a", "c"] and named.loc["c", "threshold"] == pytest.approx(0.01505)


def test_cells_and_kernels_of_equal_gains_keep_their_order() -> None:
    names = ("z", "a")
    steps = pd.concat([made({}).assign(model=name) for name in names], ignore_index=True)
    rows = kernel_rows(grid_x=[4, 4], total_ns=[50.0] * 2, function=["y", "b"])
    found = table(steps, pd.concat([rows.assign(model=name) for name in names], ignore_index=True))
    assert list(dict.fromkeys(found["model"])) == ["z", "a"]
    named = found[(found["level"] == "kernel") & (found["model"] == "z")]
    assert named["function"].tolist() == ["y", "b"] and named["rank"].tolist() == [1, 2]


def test_of_several_processes_the_busiest_is_judged() -> None:
    busy, idle = made({"idle_input": 0.2}).assign(process=7), made({"idle_input": 0.6}).assign(process=3)
    found = table(pd.concat([idle, busy], ignore_index=True))
    assert found["evidence"].tolist() == ["steps.csv: process 7"] and found["share"].iloc[0] == pytest.approx(0.2)


@pytest.mark.parametrize(("counted", "told"), [(0.8, False), (0.79, True), (0.0, False)])
def test_too_few_counters_are_told_below_four_fifths(counted: float, told: bool) -> None:
    rows = kernel_rows(total_ns=[counted * 100, 100 - counted * 100])
    found = table(made({}), rows, held([0.4, np.nan], ["dram", ""])).query(f"verdict == '{UNDECIDED}'")
    assert found["value"].tolist() == pytest.approx([0.79] * told)
    assert found["next_step"].str.startswith("counters cover 79% of GPU time").all()


def test_verdicts_that_abstain_come_last() -> None:
    """Input gains 1.25; advice on launches, which would gain 1 / 0.6, helps no more often than a coin."""
    score = advice_scores.Score(9, 3, 0.1, 0.3, 0.2, 0.9, 1 / 3, 1 / 3)
    poor = replace(UNTRIED, held_out={"graph": score})
    found = table(made({"idle_input": 0.2, "idle_host": 0.4}), scored=poor)
    assert found["verdict"].tolist() == ["input-bound", "launch-bound"] and np.isnan(found["gain"].iloc[1])


def test_without_a_trace_there_is_nothing_to_judge() -> None:
    found = table(STEPS[:0], pd.DataFrame(columns=["model", "phase"]))
    assert found.empty and list(found.columns) == verdicts.COLUMNS


@pytest.mark.parametrize("most", slow.first([1, None]))
def test_advice_of_ncu_counts_by_what_it_is_worth_to_the_step(recording: Callable, most: int | None) -> None:
    """Of recorded launches, one of which has 0.9 of the step."""
    details = ncu_details.read_details(recording("ncu/launch.details.csv"))
    said = details[details["Rule Type"].eq("OPT") & details["Estimated Speedup"].gt(0)]
    ids = details["ID"].drop_duplicates().to_list()
    assert said["ID"].nunique() > 1
    for number, one in islice(said.groupby("ID"), most):
        launches = pd.DataFrame({"id": ids}).assign(**dict.fromkeys(KEYS, 1))
        launches["mangled"] = [f"k{number}" for number in ids]
        times = [90.0 if other == number else 10.0 / (len(ids) - 1) for other in ids]
        rows = kernel_rows(total_ns=times).assign(**{key: launches[key] for key in KEYS})
        given = rows, None, {}, {("m", "train"): (details, launches)}, {}, PLAIN
        found = verdicts.tabulate_verdicts(made({}), *given).query(f"by == '{verdicts.TOOL}'")
        assert 0 < len(found) <= verdicts.MAX_ROWS and (found["level"] == "kernel").all()
        assert (found["share"] * found["value"]).is_monotonic_decreasing
        first = found.iloc[0]
        assert first["share"] == pytest.approx(0.9) and first["value"] == one["Estimated Speedup"].max()
        assert first["evidence"] == f"ncu-details.csv: launch {number}"
        if "global" in first["metric"]:
            assert first["gain"] == pytest.approx(1 / (1 - 0.9 * first["value"] / 100))
        assert found.loc[found["metric"].str.contains("local"), "gain"].isna().all()


def ncu_said(*rows: dict[str, Any], totals: tuple[float, ...] = (60.0, 40.0), share: float = 0.5) -> list[Verdict]:
    """What ncu advises on launches of configurations of these times, and one more that the table of kernels lacks."""
    known = {"ID": 0, "Rule Type": "OPT", SPEEDUP: 50.0, "Estimated Speedup Type": "global", "Kernel Name": "f(int)",
             "Rule Name": "r", "Rule Description": "do", "Section Name": "s"}  # fmt: skip
    launches = pd.DataFrame({"id": range(len(totals) + 1)}).assign(**dict.fromkeys(KEYS, 1))
    launches["grid_x"] = range(len(totals) + 1)
    rows_of_kernels = launches[:-1].assign(total_ns=totals, **{"class": "softmax"})
    return verdicts.tabulate_ncu_advice(pd.DataFrame([known | row for row in rows]), launches, rows_of_kernels, share)


def test_what_ncu_advises_by_its_worth_to_the_step() -> None:
    """Kernels of 60 and 40 have 0.3 and 0.2 of the step: 20 and 50 % of these are 0.06 and 0.1 of it."""
    first, second, none = ncu_said({"ID": 0, SPEEDUP: 20.0}, {"ID": 1, "Rule Name": "q"}, {"ID": 2, "Rule Name": "p"})
    assert (first.share, second.share) == pytest.approx((0.2, 0.3)) and np.isnan(none.share or 0)
    assert (first.gain, second.gain) == pytest.approx((1 / 0.9, 1 / 0.94))
    assert (first.value, first.evidence) == (50, "ncu-details.csv: launch 1")
    # Of a configuration that the kernel table lacks, the name alone tells the class.
    assert (first.kernel_class, none.kernel_class) == ("softmax", "other")
    # What is not advice to optimise, or saves nothing, is none; a unit's own speed-up is none of the launch.
    assert ncu_said({"Rule Type": "INF"}, {SPEEDUP: 0.0}, {SPEEDUP: np.nan}) == []
    (local,) = ncu_said({"Estimated Speedup Type": "local"})
    assert local.gain is None and local.share == pytest.approx(0.3)
    # One of a function and rule, and the largest five of many.
    assert len(ncu_said({}, {"ID": 1}, {"Rule Name": "q"})) == 2
    assert len(ncu_said(*({"Rule Name": f"r{number}"} for number in range(6)))) == 5
    # That nothing of the step would be left is said by no number.
    (whole,) = ncu_said({SPEEDUP: 200.0}, totals=(5.0,), share=1.0)
    assert whole.columns()["gain"] is None and whole.value == 200


@pytest.mark.parametrize(("printed", "value"), [("1,234.5", 1234.5), ("12.5", 12.5)])
def test_speed_ups_of_ncu_are_read_whatever_their_size(tmp_path: Path, printed: str, value: float) -> None:
    details = pd.DataFrame({"ID": [0, 0], "Kernel Name": "f()", "Rule Type": "OPT", "Rule Name": "R", "Section Name": "S",
                            "Rule Description": "do", "Estimated Speedup Type": "local", "Metric Value": "",
                            "Estimated Speedup": [printed, None]})  # fmt: skip
    write_csv(details, page := tmp_path / "d.csv")
    assert ncu_details.read_details(page)["Estimated Speedup"].tolist() == pytest.approx([value, np.nan], nan_ok=True)
    write_csv(details.assign(**{"Estimated Speedup": ["12,5", None]}), page)
    with pytest.raises(DataError, match=r"d\.csv: column Estimated Speedup holds '12,5'"):
        ncu_details.read_details(page)


def test_no_verdict_per_step_is_given_where_no_step_repeats(kernels: pd.DataFrame, judged: pd.DataFrame) -> None:
    cell, other = ("lstm", "inference"), ("vgg19", "inference")
    tool = "torch.profiler"
    facts = CellFacts(timed_under={cell: tool, other: tool}, whole=frozenset({cell}))
    found = verdicts.tabulate_verdicts(steps_of(cell, other), kernels, None, {}, {}, {}, RULES, facts=facts)
    mine = found[found["model"] == "lstm"]
    (only,) = mine[mine["level"] == "cell"].to_dict("records")
    assert only["verdict"] == UNDECIDED and only["next_step"].startswith("no step repeats")
    assert "step=NAME" in only["next_step"]
    assert mine[["gain", "gain_low", "gain_high", "limit", "settings", "method", "score"]].isna().all(axis=None)
    assert "setting" not in set(mine["level"]) and not mine["metric"].str.contains("of the step").any()
    # What kernels are is still said, and a cell with steps keeps its verdicts.
    named = ["level", "class", "function", "rank", "verdict", "value", "share"]
    of_kernels = judged[(judged["model"] == "lstm") & (judged["level"] == "kernel")]
    pd.testing.assert_frame_equal(mine.loc[mine["level"] == "kernel", named].reset_index(drop=True),
                                  of_kernels[named].reset_index(drop=True))  # fmt: skip
    assert len(of_kernels)
    steady, before = (one[one["model"] == "vgg19"] for one in (found, judged))
    assert (steady["timed_under"] == tool).all()
    assert steady.drop(columns="timed_under").to_csv(index=False) == before.drop(columns="timed_under").to_csv(
        index=False
    )


def read_at(operation: str = ".item()", calls: int = 1, where: str = "") -> Any:
    """A line that reads a value."""
    return {"file": "train.py", "line": 84, "function": "log", "text": "", "operation": operation, "range": where,
            "calls": calls}  # fmt: skip


def about(name: str, gain: float = 2.0) -> Verdict:
    return a_verdict(name, about=name, gain=gain, next_step="avoid waiting")


@pytest.mark.parametrize(
    ("lines", "logs"),
    [
        ([read_at()], True),
        ([read_at("float()"), read_at("print()", 2)], True),
        ([read_at(), read_at("x[mask]")], False),
        ([read_at(where="forward")], False),
        ([read_at(where="backward")], False),
        ([read_at(where="optimizer")], True),
        # Each of them has to read, and outside of the network.
        ([read_at("x[mask]", where="optimizer")], False),
        # Four readings per step are for logging, and five are not.
        ([read_at(calls=3), read_at("int()")], True),
        ([read_at(calls=3), read_at("int()", 2)], False),
        ([], False),
        (None, False),
    ],
)
def test_a_few_readings_outside_of_the_network_are_for_logging(lines: Any, logs: bool) -> None:
    assert bool(find_logged(lines)) is logs


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (2.0, ", 1.82 times as fast"),
        (1.25, ", 1.22 times as fast"),
        (1.0, ""),
        (0.5, ""),
        (4.0, ", 3.08 times as fast"),
    ],
)
def test_nine_of_ten_readings_are_saved(gain: float, said: str) -> None:
    """A gain of 1.25 saves a fifth of the step, of which 0.9 is 0.18: 1 / 0.82."""
    (row,) = advise_logging([about(LOGGING, gain)], Feasibility(lines=[read_at()]))
    assert row.next_step.startswith(".item() at train.py:84, once per step: ")
    assert f"every 10 steps{said}, or be kept" in row.next_step


def test_one_verdict_on_waits_is_enough_and_others_stay_as_they_are() -> None:
    both, other = [about(LOGGING), about(SYNCHRONISATION)], about("idle_input")
    logs, computes = Feasibility(lines=[read_at()]), Feasibility(lines=[read_at(calls=62)])
    first, second = advise_logging([*both, other], logs)
    assert (first.about, second.about) == (SYNCHRONISATION, "idle_input")
    assert first.next_step.startswith("avoid waiting; ") and "every 10 steps" in first.next_step
    assert list(advise_logging([*both, other], computes)) == [both[1], other]
    assert list(advise_logging([about(LOGGING)], Feasibility(lines=None))) == []


NO_STEP = pd.Series(dtype=float)


LOOP, LAUNCHES = "looped optimizer", "launch-bound"


@pytest.mark.parametrize(("looped", "others", "first"), [(25, 20, LOOP), (8, 37, LAUNCHES)])
def test_launches_come_behind_the_loop_that_makes_most_of_them(
    looped: int, others: int, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated step of small launches, some of which a loop makes; one launch does their work in nearly the same time."""
    monkeypatch.setattr(simulated_waits, "STEPS", 4)
    acts = [*[operator(2e3)] * others, *[operator(2e3, group=1)] * looped]
    program, _ = simulated_waits.traced(acts, tmp_path)
    replayed, rows = CellSimulation(program), launched.configurations(program)
    rows = rows[rows["launches"] == looped]
    assert len(rows) == 1
    changes = (RequestedChange(GRAPH), RequestedChange(FUSED, rows, rows["launches"] * 0 + 0.01))
    launches, loop = (
        a_verdict(name, about=of, change=change, gain=getattr(replayed.gain(change, NO_STEP, 0.0), "gain", None))
        for name, of, change in zip((LAUNCHES, LOOP), ("idle_launching", "optimizer_loop"), changes, strict=True)
    )
    assert launches.gain > loop.gain > 1

    def ranked(rows: Sequence[Verdict], **given: Any) -> list[str]:
        return [row.verdict for row in verdicts.rank_verdicts(rows, RULES["explanations"], **given)]

    simulation = {"replayed": replayed, "step": NO_STEP}
    assert ranked([loop, launches], **simulation)[0] == first
    # Without a simulation nothing is known to explain anything.
    assert ranked([loop, launches]) == [LAUNCHES, LOOP]
    # Another finding of the same gain keeps its place, and so does what has no simulated change.
    for kept in (replace(launches, verdict="padded batches"), replace(launches, change=None)):
        assert ranked([loop, kept], **simulation) == [kept.verdict, LOOP]
