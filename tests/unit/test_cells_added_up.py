"""Tables across cells: sums, shares and ratios of two cells under several tools, worked out by hand."""

import pandas as pd
import pytest

from profzoo import tools
from profzoo.tables import cell_tables
from profzoo.tables.rank_imbalance import across_cells
from profzoo.tables.schemas import CELL, STEP_LEADING
from profzoo.tools.ncu.derived_metrics import GPU_TIME

A, B, C = ({"model": name, "phase": "train"} for name in "abc")


def facts(window: int, **more: object) -> dict:
    """What the tables read of a sidecar."""
    return {"cell": {"window": window}, "device_type": "cuda", "gaps": [], **more}


def traced(*rows: tuple[str, str, int, int]) -> pd.DataFrame:
    """Kernel, range, launches and ns under nsys."""
    return pd.DataFrame(rows, columns=["kernel", "range", "launches", "total_ns"])


def sampled(watts: float, celsius: float) -> pd.DataFrame:
    """Twenty samples, 10 ms apart, of a GPU with a steady clock; its counter of energy moves once per sample."""
    table = pd.DataFrame({"t_ns": [at * 10**7 for at in range(20)], "process": 0, "gpu_uuid": "g"})
    energy = table["t_ns"] / 1e9 * watts
    return table.assign(power_w=watts, energy_j=energy, sm_clock_hz=1.5e9, temperature_c=celsius, throttle_reasons=0)


WINDOW = {"power_is": "draw", "window_wall_ns": 200_000_000, "steps": 4, "items": 8}


def test_tools_add_columns_to_the_cells_that_they_saw() -> None:
    """200 W for 0.2 s are 40 J: 10 per step and 5 per item. Cell b was not sampled, c is not in the table."""
    baseline = pd.DataFrame([{**A, "step_ns": 5.0}, {**B, "step_ns": 6.0}])
    exported = [("sample", C, sampled(50, 30), facts(4, **WINDOW)), ("sample", A, sampled(200, 70), facts(4, **WINDOW)),
                ("nsys", B, traced(("k", "", 1, 1)), facts(1))]  # fmt: skip
    found = cell_tables.add_tool_columns(baseline, exported)
    assert found[CELL].to_numpy().tolist() == [["a", "train"], ["b", "train"]] and found["step_ns"].tolist() == [5, 6]
    assert found.loc[0, ["power_w", "temperature_max_c"]].tolist() == pytest.approx([200, 70])
    assert found.loc[0, ["step_energy_power_j", "item_energy_power_j"]].tolist() == pytest.approx([10, 5])
    assert found.loc[1].drop([*CELL, "step_ns"]).isna().all()


def test_where_tools_add_nothing_the_cells_stay_as_they_are() -> None:
    baseline = pd.DataFrame([{**A, "step_ns": 5.0}])
    for exported in ([], [("sample", A, sampled(200, 70), facts(4, **WINDOW) | {"gaps": ["too few"]})]):
        pd.testing.assert_frame_equal(cell_tables.add_tool_columns(baseline, exported), baseline)


def test_kernels_of_one_name_and_range_are_one_row_of_all_their_launches() -> None:
    """Over two steps k runs 2 + 4 times forward in 10 + 30 ns, in two configurations; j takes 60 ns."""
    table = traced(("k", "forward", 2, 10), ("j", "", 2, 60), ("k", "forward", 4, 30), ("k", "loss", 2, 100))
    found = cell_tables.activity([("nsys", A, table, facts(2)), ("nsys", B, traced(("k", "", 1, 1)), facts(1))])
    assert found[["model", "name", "range", "launches_per_step", "ns_per_step", "share"]].to_numpy().tolist() == [
        ["a", "k", "loss", 1, 50, 0.5],
        ["a", "j", "", 1, 30, 0.3],
        ["a", "k", "forward", 3, 20, 0.2],
        # A share is of the cell's own time, however little that is.
        ["b", "k", "", 1, 1, 1],
    ]
    assert found.index.tolist() == [0, 1, 2, 3]


def test_tools_that_see_no_kernels_have_no_rows() -> None:
    exported = [("sample", A, sampled(200, 70), facts(4, **WINDOW)), ("nsys", A, traced(("k", "", 3, 6)), facts(3))]
    assert cell_tables.activity(exported)["tool"].tolist() == ["nsys"]
    launched = pd.DataFrame({"kernel": ["k"], "range": [""], GPU_TIME: [5]})
    found = cell_tables.ranges([*exported, ("ncu", A, launched, facts(1))])
    assert found[["tool", "range", "ns_per_step", "launches_per_step"]].to_numpy().tolist() == [["nsys", "", 2, 1]]


def test_kernel_tables_of_cells_stand_one_below_the_other() -> None:
    one = pd.DataFrame({"range": ["", "loss"], "mangled": ["k", "j"], "share": [0.75, 0.25]})
    found = cell_tables.kernels([(A, one), (B, one.iloc[:1])])
    assert found[["model", "mangled", "share"]].to_numpy().tolist() == [["a", "k", 0.75], ["a", "j", 0.25],
                                                                        ["b", "k", 0.75]]  # fmt: skip
    assert found.index.tolist() == [0, 1, 2] and list(found.columns[:2]) == CELL
    assert cell_tables.kernels([]).empty and "share" in cell_tables.kernels([])


def step(**ns: float) -> pd.DataFrame:
    """A row of a cell's steps under nsys, without communication."""
    row = {"process": 1, "steps": 9, "busy_ns": 60.0, "wall_ns": 200.0, "communication_ns": 0.0, "overlap_ns": 0.0}
    return pd.DataFrame([{**row, **ns}])


def test_the_busy_share_is_of_the_unprofiled_step_and_never_above_all() -> None:
    """Cell a is busy for 60 of 100 ns, b for 150 of 100, as nsys slows it down; c has no unprofiled step."""
    baseline = pd.DataFrame([{**cell, "step_ns": 100.0, "step_median_ns": 90.0} for cell in (A, B)])
    rows = [(A, step()), (B, step(busy_ns=150.0)), (C, step())]
    table = cell_tables.steps(baseline, rows, across_cells([]))
    assert table["model"].tolist() == ["a", "b", "c"] and table.index.tolist() == [0, 1, 2]
    assert table["busy_share"].tolist()[:2] == [0.6, 1] and table["busy_share"].isna().tolist() == [False, False, True]
    assert table["nsys_busy_share"].tolist() == [0.3, 0.75, 0.3]
    assert list(table.columns[: len(STEP_LEADING)]) == STEP_LEADING and not table.columns.duplicated().any()
    assert table["busy_ns"].tolist() == [60, 150, 60] and table["waiting_ns"].tolist() == [0, 0, 0]
    assert list(cell_tables.steps(baseline, [], across_cells([])).columns) == STEP_LEADING


def test_agreement_is_of_all_kernels_of_the_tools_that_saw_the_cell() -> None:
    """nsys: 4 launches and 100 ns per step; ncu: 5 and 125. Cell b was seen by nsys alone, c by none."""
    by_ncu = pd.DataFrame({"kernel": list("kkkkj"), "range": "", GPU_TIME: [20, 20, 20, 20, 45]})
    exported = [("nsys", A, traced(("k", "", 6, 120), ("j", "", 2, 80)), facts(2)), ("ncu", A, by_ncu, facts(1)),
                ("nsys", B, traced(("k", "", 3, 60)), facts(3))]  # fmt: skip
    baseline = pd.DataFrame([{**cell, "step_ns": 50.0} for cell in (C, A, B)])
    walls = [("nsys", A, 75.0), ("nsys", B, 200.0), ("torch", C, 60.0)]
    table = cell_tables.agreement(baseline, cell_tables.activity(exported), walls).set_index("model")
    assert table.loc["a", ["nsys_launches", "ncu_launches", "nsys_gpu_ns", "ncu_gpu_ns"]].tolist() == [4, 5, 100, 125]
    assert table.loc["a", ["launches_spread", "gpu_ns_spread"]].tolist() == [0.2, 0.2]
    assert table.loc["b", ["nsys_launches", "nsys_gpu_ns"]].tolist() == [1, 20]
    assert table.loc[["b", "c"], ["launches_spread", "gpu_ns_spread"]].isna().all(axis=None)
    assert table["nsys_slowdown"].fillna(0).to_dict() == {"c": 0, "a": 1.5, "b": 4}
    assert table["torch_slowdown"].fillna(0).to_dict() == {"c": 1.2, "a": 0, "b": 0}
    # A tool that no cell was run under has no columns.
    assert "torch_launches" not in table and "ncu_slowdown" not in table


def test_three_tools_are_held_against_the_largest() -> None:
    by_torch = pd.DataFrame({"kind": ["kernel"], "name": ["k"], "range": [""], "count": [3], "device_ns": [80]})
    by_ncu = pd.DataFrame({"kernel": ["k", "k"], "range": "", GPU_TIME: [50, 50]})
    exported = [("nsys", A, traced(("k", "", 4, 60)), facts(1)), ("torch", A, by_torch, facts(1)),
                ("ncu", A, by_ncu, facts(1))]  # fmt: skip
    table = cell_tables.agreement(pd.DataFrame([{**A, "step_ns": 50.0}]), cell_tables.activity(exported), [])
    # Launches of 4, 3 and 2; ns of 60, 80 and 100.
    assert table["launches_spread"].tolist() == [0.5] and table["gpu_ns_spread"].tolist() == [0.4]
    assert set(tools.compared_activities()) == {"nsys", "torch", "ncu"}


def test_a_cell_says_what_ran_and_per_second() -> None:
    """After a first step of 9 ms, steps of 1, 2, 3 and 2 ms take 2 in the mean; with 4 items each, 2,000 per second."""
    steps = pd.DataFrame({"wall_ns": 1.0, "gpu_ns": [9e6, 1e6, 2e6, 3e6, 2e6]})
    sidecar = {"device": "GPU", "started": "2026-11-20T10:00:00+00:00", "parameters": 7, "batch": 4, "steps": 5}
    sidecar |= {"cell": {"workload": "full", "precision": "bf16"}, "items": 20, "loss": 0.5}
    (row,) = cell_tables.cells([(A, steps, {**sidecar, "peak_memory_bytes": 11, "peak_rss_bytes": 12})]).to_dict(
        "records"
    )
    assert row["step_ns"] == 2e6 and row["items_per_s"] == pytest.approx(2000) and row["date"] == "2026-11-20"
    assert (row["batch"], row["parameters"], row["steps"], row["processes"]) == (4, 7, 5, 1)
    assert (row["peak_memory_bytes"], row["peak_rss_bytes"], row["loss"]) == (11, 12, 0.5)
    # The middle half of 1, 2, 2 and 3 ms is from 1.75 to 2.25.
    assert (row["step_lower_quartile_ns"], row["step_upper_quartile_ns"]) == (1.75e6, 2.25e6)
    assert row["unsteady"].startswith("the middle")
