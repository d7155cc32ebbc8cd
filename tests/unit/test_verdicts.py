"""lib/verdicts: what holds cells back, by real tables of the zoo and by made ones."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from models import run
from tests.conftest import DATA
from workflow.scripts.lib import verdicts

RULES = verdicts.rules()
STEPS = pd.read_csv(DATA / "zoo/steps.csv")


@pytest.fixture(scope="module")
def kernels(recording: Callable) -> pd.DataFrame:
    return pd.read_csv(recording("zoo/kernels.csv"))


@pytest.fixture(scope="module")
def judged(kernels: pd.DataFrame) -> pd.DataFrame:
    """The verdicts on the whole zoo, without counters."""
    return verdicts.table(STEPS, kernels, None, {}, {}, RULES)


def leading(judged: pd.DataFrame, model: str, phase: str) -> pd.Series:
    """A cell's first verdict."""
    mine = judged[(judged["model"] == model) & (judged["phase"] == phase) & (judged["level"] == "cell")]
    return mine[mine["rank"] == 1].iloc[0]


def made(share: dict[str, float], stretch: float = 1.0) -> pd.DataFrame:
    """A step of 1 ms with these shares of its wall time."""
    names = [name for name in STEPS.columns if name.endswith("_ns")]
    row = dict.fromkeys(names, 0.0) | {
        "model": "m",
        "phase": "train",
        "process": 1,
        "step_ns": 1e6,
        "step_median_ns": 1e6,
    }
    row |= {f"{name}_ns": value * 1e6 for name, value in share.items()}
    idle = sum(value for name, value in share.items() if name.startswith("idle_"))
    busy = 1 - idle
    row |= {"idle_ns": idle * 1e6, "busy_ns": busy * 1e6, "busy_share": busy, "wall_ns": stretch * 1e6}
    return pd.DataFrame([row])


def kernel_rows(**columns: list) -> pd.DataFrame:
    """Launch configurations of one cell, a hundred blocks to each of its ten multiprocessors."""
    count = len(next(iter(columns.values())))
    fixed = {"model": "m", "phase": "train", "class": "gemm", "function": "f", "grid_x": 1000, "grid_y": 1, "grid_z": 1,
             "multiprocessors": 10, "total_ns": 100.0}  # fmt: skip
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
        ("inceptionv3", "inference", "input-bound"),
        ("lstm", "inference", "input-bound"),
        ("icnet", "train", "latency-bound (small grid)"),
        ("mobilenetv2", "inference", verdicts.UNDECIDED),
        ("vgg19", "inference", verdicts.NOTHING),
    ],
)
def test_leading_verdicts_of_real_cells(judged: pd.DataFrame, model: str, phase: str, verdict: str) -> None:
    assert leading(judged, model, phase)["verdict"] == verdict


def test_gains_are_amdahls_and_ranked(judged: pd.DataFrame) -> None:
    ours = judged[judged["cured"].notna()]
    expected = 1 / (1 - ours["value"] * ours["cured"])
    assert np.allclose(ours["gain"], expected) and (ours["gain"] >= 1).all()
    decided = judged[(judged["level"] == "cell") & judged["gain"].notna()]
    for _, mine in decided.groupby(["model", "phase"]):
        assert mine["gain"].is_monotonic_decreasing


def test_shares_add_up_to_the_step() -> None:
    shares = verdicts.shares(STEPS)
    assert np.allclose(shares.sum(axis=1), 1) and (shares > -1e-9).all().all()
    assert np.allclose(shares["busy"] + shares["copy"], STEPS["busy_share"])


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        ({"idle_input": 0.3}, "input-bound"),
        ({"idle_synchronisation": 0.3}, "synchronisation-bound"),
        ({"idle_latency": 0.1, "idle_launch": 0.1, "idle_host": 0.1}, "launch-bound"),
        ({"communication": 0.3}, "communication-bound"),
    ],
)
def test_what_a_step_waits_for(share: dict[str, float], verdict: str) -> None:
    table = verdicts.table(made(share), kernel_rows(total_ns=[1.0]), None, {}, {}, RULES)
    assert table["verdict"].tolist() == [verdict]
    assert table["value"].iloc[0] == pytest.approx(0.3) and table["gain"].iloc[0] == pytest.approx(1 / 0.7)
    assert table["source"].iloc[0] and "steps.csv" in table["evidence"].iloc[0]


def test_communication_that_is_overlapped_does_not_count() -> None:
    table = verdicts.table(
        made({"communication": 0.3, "overlap": 0.25}), kernel_rows(total_ns=[1.0]), None, {}, {}, RULES
    )
    assert table["verdict"].tolist() == [verdicts.NOTHING]


def test_waiting_for_other_processes_is_no_communication() -> None:
    step = made({"communication": 0.6, "waiting": 0.4}).assign(busy_share=0.6)
    shares = verdicts.shares(step).iloc[0]
    assert shares["communication"] == pytest.approx(0.2) and shares["busy"] == pytest.approx(0.4)
    table = verdicts.table(step, kernel_rows(total_ns=[1.0]), None, {}, {}, RULES)
    assert table["verdict"].tolist() == ["communication-bound"] and table["gain"].iloc[0] == pytest.approx(1 / 0.8)


def test_causes_that_the_profiler_stretched_are_not_told() -> None:
    table = verdicts.table(made({"idle_input": 0.5}, stretch=3), kernel_rows(total_ns=[1.0]), None, {}, {}, RULES)
    assert table["verdict"].tolist() == [verdicts.UNDECIDED] and table["gain"].isna().all()
    assert "idles 50% of the step, but nsys stretches it 3.0 times" in table["next_step"].iloc[0]


def test_causes_of_steps_that_were_disturbed_are_not_told() -> None:
    step = made({"idle_input": 0.5}).assign(step_median_ns=0.5e6)
    table = verdicts.table(step, kernel_rows(total_ns=[1.0]), None, {}, {}, RULES)
    assert table["verdict"].tolist() == [verdicts.UNDECIDED] and table["value"].tolist() == [2]
    assert "without a profiler its mean is 2.0 times its median" in table["next_step"].iloc[0]


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
    table = verdicts.table(made({}), rows, roofs, {"fp32": 50.0, "tf32": 500.0}, {}, RULES)
    cell = table[table["level"] == "cell"].iloc[0]
    assert (cell["verdict"], cell["value"], cell["cured"]) == (verdict, pytest.approx(0.6), pytest.approx(cured))
    assert cell["gain"] == pytest.approx(1 / (1 - 0.6 * cured))
    kernel = table[table["level"] == "kernel"].iloc[0]
    assert (kernel["verdict"], kernel["function"], kernel["value"]) == (verdict, "f", pytest.approx(0.6))


def test_shorter_kernels_gain_no_more_than_the_cpu_lets_through() -> None:
    rows, roofs = kernel_rows(total_ns=[60.0, 40.0]), held([0.8, 0.4], ["simt", "dram"])
    step = made({}).assign(host_ns=0.9e6)
    table = verdicts.table(step, rows, roofs, {"fp32": 50.0, "tf32": 500.0}, {}, RULES)
    assert table["gain"].tolist() == table["limit"].tolist() == pytest.approx([1 / 0.9] * 2)
    assert table["next_step"].str.startswith(verdicts.LAUNCH_LESS + "use tensor cores").all()
    for host, stretch in ((0.1e6, 1.0), (0.9e6, 3.0), (np.nan, 1.0)):
        free = verdicts.table(
            made({}, stretch).assign(host_ns=host), rows, roofs, {"fp32": 50.0, "tf32": 500.0}, {}, RULES
        )
        assert free["gain"].iloc[0] == pytest.approx(1 / (1 - 0.6 * 0.9)) and free["limit"].isna().all()


def test_a_grid_smaller_than_the_gpu() -> None:
    rows = kernel_rows(total_ns=[50.0, 50.0], grid_x=[4, 40], function=["small", "large"])
    table = verdicts.table(made({}), rows, None, {}, {}, RULES)
    assert table["verdict"].tolist() == ["latency-bound (small grid)"] * 2
    assert table["function"].dropna().tolist() == ["small"]
    # Four blocks for ten multiprocessors: the other six could have done as much beside.
    assert table["cured"].tolist() == pytest.approx([0.6, 0.6])


def test_too_few_counters_are_said() -> None:
    rows, roofs = kernel_rows(total_ns=[30.0, 70.0]), held([0.9, float("nan")], ["dram", ""])
    table = verdicts.table(made({}), rows, roofs, {}, {}, RULES)
    undecided = table[table["verdict"] == verdicts.UNDECIDED].iloc[0]
    assert undecided["value"] == pytest.approx(0.3) and "counters cover 30% of GPU time" in undecided["next_step"]


def test_short_kernels_are_not_judged_one_by_one() -> None:
    rows = kernel_rows(total_ns=[1.0, 99.0], grid_x=[4, 1000], function=["short", "long"])
    table = verdicts.table(made({}), rows, None, {}, {}, RULES)
    assert not (table["level"] == "kernel").any()


def test_advice_of_ncu_is_carried_along(recording: Callable) -> None:
    details = pd.read_csv(recording("ncu/launch.details.csv"))
    advice = {("m", "train"): details}
    table = verdicts.table(made({}), kernel_rows(total_ns=[1.0]), None, {}, advice, RULES)
    ncu = table[table["by"] == verdicts.NCU]
    assert 0 < len(ncu) <= verdicts.ADVICE and ncu["value"].is_monotonic_decreasing
    first = ncu.iloc[0]
    assert first["verdict"] == "ncu: LaunchConfiguration" and first["value"] == pytest.approx(99.24)
    assert first["next_step"].startswith("The grid for this launch is configured to execute only 1 block")
    assert ncu["gain"].isna().all() and (ncu["level"] == "kernel").all()


def test_without_a_trace_there_is_nothing_to_judge() -> None:
    table = verdicts.table(STEPS[:0], pd.DataFrame(columns=["model", "phase"]), None, {}, {}, RULES)
    assert table.empty and list(table.columns) == verdicts.COLUMNS


def test_every_rule_says_what_to_do_and_where_that_is_from() -> None:
    known = {"idle_launching", *verdicts.shares(STEPS).columns, "small_grid", "memory", "simt", "tensor", "underused"}
    for rule in RULES["rules"]:
        assert rule["share"] in known and rule["of"] in ("step", "kernels") and 0 < rule["at_least"] < 1
        assert rule["next"] and rule["source"]
        assert rule["of"] == "step" or rule["launches"] in ("kept", "changed")


@pytest.mark.parametrize(
    ("data_ns", "settings", "advice"), [(5e6, "workers=4 pin_memory=true", "workers: 2"), (3e5, None, "a larger batch")]
)
def test_workers_are_advised_where_they_hand_batches_over_faster(
    data_ns: float, settings: str | None, advice: str
) -> None:
    step = made({"idle_input": 0.3}).assign(cpu_data_ns=data_ns)
    found = verdicts.table(step, kernel_rows(total_ns=[1.0]), None, {}, {}, RULES).iloc[0]
    assert (found["verdict"], found["settings"]) == ("input-bound", settings)
    assert advice in found["next_step"]


def test_settings_that_follow_advice_are_settings_of_a_cell() -> None:
    tried = [rule["settings"].split() for rule in RULES["rules"] if "settings" in rule]
    assert len(tried) == 4
    untouched = run.resolve("vgg16", "train", "time", [])
    for words in tried:
        assert run.resolve("vgg16", "train", "time", words) != untouched
