"""cell_tables: per-step sums across cells and tools, whatever their windows; what was not measured stays empty."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo import tools
from profzoo.errors import DataError
from profzoo.io.scripts import write_json
from profzoo.tables import cell_tables, steps_per_export
from profzoo.tables.across_cells import across_cells
from profzoo.tables.schemas import CELL as KEY
from profzoo.tables.schemas import STEP_LEADING
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.verdicts.verdict import Verdict

CELL = {"model": "unet", "phase": "train"}


def facts(window: int, device: str = "cuda", **more: object) -> dict:
    """A sidecar with what the tables read."""
    cell = {"window": window, "steps": window + 3, "workload": "trimmed", "precision": "fp32"}
    run = {"parameters": 7, "batch": 2, "steps": window, "items": 2 * window, "window_wall_ns": window * 10**9}
    run |= {"step_ns": 5e8, "peak_memory_bytes": None, "peak_rss_bytes": 9, "loss": None, "device": device}
    return {"cell": cell, "device_type": device, "started": "2026-11-20T10:00:00+00:00", **run, **more}


NSYS = pd.DataFrame(
    {"kernel": ["a", "a", "b"], "range": ["forward", "backward", None], "launches": [10, 20, 10], "total_ns": [100, 600, 300]}
)  # fmt: skip
NCU = pd.DataFrame(
    {"kernel": ["a", "a", "a", "b"], "range": ["forward", "backward", "backward", ""], GPU_TIME: [20, 60, 60, 60]}
)
TORCH = pd.DataFrame(
    {
        "kind": ["kernel", "kernel", "operator", "range", "range"],
        "name": ["a", "b", "aten::add", "forward", "step"],
        "range": ["forward", None, None, None, None],
        "count": [9, 3, 5, 3, 3],
        "device_ns": [90, 210, None, 90, None],
        "self_cpu_ns": [None, None, 30, 1, 1],
        "cpu_ns": [None, None, 60, 600, 900],
    }
)
EXPORTED = [("nsys", CELL, NSYS, facts(10)), ("torch", CELL, TORCH, facts(3)), ("ncu", CELL, NCU, facts(1))]


def test_cell_of() -> None:
    assert cell_tables.cell_of("results/unet/train.time.csv") == CELL
    found = cell_tables.cell_of("/a/b.c/lstm@bf16/inference.ncu.full.csv")
    assert found == {"model": "lstm@bf16", "phase": "inference"}


@pytest.mark.parametrize(
    ("more", "steps"), [({}, 10), ({"capture": "window"}, 10), ({"capture": "run", "traced_steps": 7}, 7)]
)
def test_profiled_steps(more: dict, steps: int) -> None:
    assert steps_per_export.count_profiled_steps(facts(10, **more)) == steps


@pytest.mark.parametrize(("gpu_ns", "median"), [([9, 1, 2, 9], 2), ([None, None, None, None], 20)])
def test_cells_take_the_gpus_clock_where_there_is_one(gpu_ns: list, median: float) -> None:
    steps = pd.DataFrame({"wall_ns": [90, 10, 20, 90], "gpu_ns": pd.Series(gpu_ns, dtype="float64")})
    row = cell_tables.cells([(CELL, steps, facts(4))]).iloc[0]
    assert (row["model"], row["date"]) == ("unet", "2026-11-20")
    assert row["step_median_ns"] == median and pd.isna(row["peak_memory_bytes"])
    # Two samples a step.
    assert row["items_per_s"] == pytest.approx(2 / row["step_ns"] * 1e9)


def test_launches_outside_the_steps_of_a_whole_run_are_none_of_a_steps() -> None:
    start_up = pd.DataFrame(
        {"kernel": ["a", "c"], "range": ["outside"] * 2, "launches": [99, 1], "total_ns": [1, 9999]}
    )
    run = [("nsys", CELL, pd.concat([NSYS, start_up]), facts(12, capture="run", traced_steps=10))]
    alone = [("nsys", CELL, NSYS, facts(10))]
    for table in (cell_tables.activity, cell_tables.ranges):
        pd.testing.assert_frame_equal(table(run), table(alone))


def test_operators_take_the_place_of_kernels_on_a_cpu() -> None:
    table = cell_tables.activity([("torch", CELL, TORCH, facts(3, "cpu"))])
    assert table[["kind", "name", "ns_per_step", "share"]].to_numpy().tolist() == [["operator", "aten::add", 10.0, 1.0]]


def test_kernels_of_nothing_have_columns() -> None:
    assert cell_tables.activity([]).empty and "share" in cell_tables.activity([])
    empty = cell_tables.activity([("nsys", CELL, NSYS.iloc[:0], facts(10))])
    assert empty.empty


def test_kernels_that_took_no_time_have_no_share_of_it() -> None:
    table = cell_tables.activity([("nsys", CELL, NSYS.assign(total_ns=0), facts(10))])
    assert table["share"].tolist() == [0, 0, 0] and table["launches_per_step"].sum() == 4
    # Of one nanosecond all is one kernel's.
    one = cell_tables.activity([("nsys", CELL, NSYS.head(1).assign(total_ns=1), facts(10))])
    assert one["share"].tolist() == [1] and one["ns_per_step"].tolist() == [0.1]


def test_ranges_on_the_gpu_and_on_the_cpu() -> None:
    table = cell_tables.ranges([*EXPORTED[:2], ("torch", CELL, TORCH, facts(3, "cpu"))]).fillna(-1)
    rows = set(table[["tool", "clock", "range", "ns_per_step", "launches_per_step"]].itertuples(index=False, name=None))
    assert rows == {
        ("nsys", "gpu", "forward", 10, 1), ("nsys", "gpu", "backward", 60, 2), ("nsys", "gpu", "", 30, 1),
        ("torch", "gpu", "forward", 30, 3), ("torch", "gpu", "", 70, 1),
        # Of a step of 300.
        ("torch", "cpu", "forward", 200, -1), ("torch", "cpu", "other", 100, -1),
    }  # fmt: skip


def baseline(*cells: dict) -> pd.DataFrame:
    """A table of cells with what agreement reads."""
    return pd.DataFrame([{**cell, "step_ns": 100.0, "step_median_ns": 90.0} for cell in cells])


def test_agreement_of_a_cpu_has_no_launches() -> None:
    kernels = cell_tables.activity([("torch", CELL, TORCH, facts(3, "cpu"))])
    table = cell_tables.agreement(baseline(CELL), kernels, [("torch", CELL, 150.0)])
    assert table["gpu_ns_spread"].isna().all() and table["torch_slowdown"].tolist() == [1.5]


def step(**ns: float) -> pd.DataFrame:
    """A row of a cell's steps under nsys, without communication."""
    row = {"process": 1, "steps": 9, "busy_ns": 60.0, "wall_ns": 200.0, "communication_ns": 0.0, "overlap_ns": 0.0}
    return pd.DataFrame([{**row, **ns}])


def test_waiting_for_other_processes_is_no_work_of_the_gpu() -> None:
    spread, alone = {"model": "a@two", "phase": "train"}, {"model": "a", "phase": "train"}
    row = step(busy_ns=90.0, communication_ns=50.0, overlap_ns=20.0)
    ranks = pd.DataFrame([{**spread, "rank": rank, "waiting_ns": waiting} for rank, waiting in ((1, 0.0), (0, 40.0))])
    table = cell_tables.steps(baseline(alone, spread), [(alone, row), (spread, row)], ranks)
    # Of 40 ns no more than the 30 in which there was nothing beside.
    assert table["waiting_ns"].tolist() == [0, 30] and table["busy_share"].tolist() == [0.9, 0.6]
    assert cell_tables.steps(baseline(alone), [(alone, row)], across_cells([]))["waiting_ns"].tolist() == [0]


def test_a_step_without_work_on_a_gpu_has_no_idle_time_of_one() -> None:
    """nsys traces cells on a CPU too; one process of several may have had nothing to do."""
    row = pd.concat([step(process=1, busy_ns=0.0), step(process=2, busy_ns=0.0)], ignore_index=True)
    other = {"model": "a", "phase": "train"}
    given = [(CELL, row), (other, row.assign(busy_ns=[0.0, 90.0]))]
    table = cell_tables.steps(baseline(CELL, other), given, across_cells([]))
    assert table["model"].tolist() == ["a", "a"] and table["busy_share"].tolist() == [0, 0.9]


def test_where_a_step_goes_by_hand() -> None:
    """GPU busy for 90 of 200 ns under nsys: 50 of NCCL, 20 of them beside others, and 25 of them no more than waiting."""
    cell, other = CELL, {"model": "lstm", "phase": "train"}
    row = step(busy_ns=90.0, communication_ns=50.0, overlap_ns=20.0)
    ranks = pd.DataFrame([{**cell, "rank": 0, "waiting_ns": 25.0}, {**cell, "rank": 1, "waiting_ns": 9.0}])
    timed = baseline(cell, other).assign(step_ns=[100.0, 50.0], cpu_taken_share=[0.02, None])
    table = cell_tables.steps(timed, [(cell, row), (other, row)], ranks)
    assert table["waiting_ns"].tolist() == [25, 0]
    # 65 of 100, and 90 of 50, which is all of it; of 200 under nsys.
    assert table["busy_share"].tolist() == [0.65, 1] and table["nsys_busy_share"].tolist() == [0.325, 0.45]
    assert table["step_median_ns"].tolist() == [90, 90] and table["cpu_taken_share"].tolist()[0] == 0.02


def test_a_row_of_a_cell_by_hand() -> None:
    """Two processes of three steps that count, of 4 and 6 ms, each after one of 9 ms; ten samples a step."""
    steps = pd.DataFrame(
        {"process": [0] * 4 + [1] * 4, "gpu_ns": [9e6, 4e6, 4e6, 4e6, 9e6, 6e6, 6e6, 6e6], "wall_ns": 1}
    )
    told = facts(8, parameters=7, batch=10, items=80, peak_memory_bytes=5, peak_rss_bytes=6, loss=0.25)
    told |= {"processes": [{"cpu_taken_share": 0.01}, {"cpu_taken_share": 0.03}]}
    row = cell_tables.cells([(CELL, steps, told)]).iloc[0]
    assert (row["step_ns"], row["step_median_ns"], row["processes"], row["steps"]) == (5e6, 5e6, 2, 8)
    assert row["items_per_s"] == pytest.approx(2000) and row["cpu_taken_share"] == 0.03
    assert (row["step_lower_quartile_ns"], row["step_upper_quartile_ns"]) == (4e6, 6e6)
    # Means of 4 and 6 have an error of 1 ms, and t of 1 degree is 12.706.
    assert (row["step_low_ns"], row["step_high_ns"]) == (4e6, pytest.approx(17.706e6, rel=1e-4))
    assert row["unsteady"] == "the slowest process takes 50% longer than the fastest" and row["between_share"] == 1
    assert row[["parameters", "batch", "peak_memory_bytes", "peak_rss_bytes", "loss"]].tolist() == [7, 10, 5, 6, 0.25]


A, B, C = ({"model": name, "phase": "train"} for name in "abc")


def told(window: int, **more: object) -> dict:
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
    exported = [("sample", C, sampled(50, 30), told(4, **WINDOW)), ("sample", A, sampled(200, 70), told(4, **WINDOW)),
                ("nsys", B, traced(("k", "", 1, 1)), told(1))]  # fmt: skip
    found = cell_tables.add_tool_columns(baseline, exported)
    assert found[KEY].to_numpy().tolist() == [["a", "train"], ["b", "train"]] and found["step_ns"].tolist() == [5, 6]
    assert found.loc[0, ["power_w", "temperature_max_c"]].tolist() == pytest.approx([200, 70])
    assert found.loc[0, ["step_energy_power_j", "item_energy_power_j"]].tolist() == pytest.approx([10, 5])
    assert found.loc[1].drop([*KEY, "step_ns"]).isna().all()


def test_where_tools_add_nothing_the_cells_stay_as_they_are() -> None:
    baseline = pd.DataFrame([{**A, "step_ns": 5.0}])
    for exported in ([], [("sample", A, sampled(200, 70), told(4, **WINDOW) | {"gaps": ["too few"]})]):
        pd.testing.assert_frame_equal(cell_tables.add_tool_columns(baseline, exported), baseline)


def test_kernels_of_one_name_and_range_are_one_row_of_all_their_launches() -> None:
    """Over two steps k runs 2 + 4 times forward in 10 + 30 ns, in two configurations; j takes 60 ns."""
    table = traced(("k", "forward", 2, 10), ("j", "", 2, 60), ("k", "forward", 4, 30), ("k", "loss", 2, 100))
    found = cell_tables.activity([("nsys", A, table, told(2)), ("nsys", B, traced(("k", "", 1, 1)), told(1))])
    assert found[["model", "name", "range", "launches_per_step", "ns_per_step", "share"]].to_numpy().tolist() == [
        ["a", "k", "loss", 1, 50, 0.5],
        ["a", "j", "", 1, 30, 0.3],
        ["a", "k", "forward", 3, 20, 0.2],
        # A share is of the cell's own time, however little that is.
        ["b", "k", "", 1, 1, 1],
    ]
    assert found.index.tolist() == [0, 1, 2, 3]


def test_tools_that_see_no_kernels_have_no_rows() -> None:
    exported = [("sample", A, sampled(200, 70), told(4, **WINDOW)), ("nsys", A, traced(("k", "", 3, 6)), told(3))]
    assert cell_tables.activity(exported)["tool"].tolist() == ["nsys"]
    launched = pd.DataFrame({"kernel": ["k"], "range": [""], GPU_TIME: [5]})
    found = cell_tables.ranges([*exported, ("ncu", A, launched, told(1))])
    assert found[["tool", "range", "ns_per_step", "launches_per_step"]].to_numpy().tolist() == [["nsys", "", 2, 1]]


def test_kernel_tables_of_cells_stand_one_below_the_other() -> None:
    one = pd.DataFrame({"range": ["", "loss"], "mangled": ["k", "j"], "share": [0.75, 0.25]})
    found = cell_tables.kernels([(A, one), (B, one.iloc[:1])])
    assert found[["model", "mangled", "share"]].to_numpy().tolist() == [["a", "k", 0.75], ["a", "j", 0.25],
                                                                        ["b", "k", 0.75]]  # fmt: skip
    assert found.index.tolist() == [0, 1, 2] and list(found.columns[:2]) == KEY
    assert cell_tables.kernels([]).empty and "share" in cell_tables.kernels([])


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
    exported = [("nsys", A, traced(("k", "", 6, 120), ("j", "", 2, 80)), told(2)), ("ncu", A, by_ncu, told(1)),
                ("nsys", B, traced(("k", "", 3, 60)), told(3))]  # fmt: skip
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
    exported = [("nsys", A, traced(("k", "", 4, 60)), told(1)), ("torch", A, by_torch, told(1)),
                ("ncu", A, by_ncu, told(1))]  # fmt: skip
    table = cell_tables.agreement(pd.DataFrame([{**A, "step_ns": 50.0}]), cell_tables.activity(exported), [])
    # Launches of 4, 3 and 2; ns of 60, 80 and 100.
    assert table["launches_spread"].tolist() == [0.5] and table["gpu_ns_spread"].tolist() == [0.4]
    assert set(tools.compared_activities()) == {"nsys", "torch", "ncu"}


# 75 ns of work under nsys, 5 of them waiting: 15 of communication alone, 12 of copies, 8 of them to the host, 35 more.
STEP = {"busy_share": 0.6, "busy_ns": 75.0, "idle_ns": 25.0, "communication_ns": 40.0, "overlap_ns": 20.0,
        "waiting_ns": 5.0, "copy_ns": 20.0, "transfer_ns": 8.0, "idle_input_ns": 10.0, "idle_host_ns": 9.0,
        "idle_launch_ns": 4.0, "idle_latency_ns": 2.0, "idle_synchronisation_ns": 0.0}  # fmt: skip


def shares(**changes: float) -> pd.Series:
    return cell_tables.step_shares(pd.DataFrame([STEP | changes])).iloc[0]


def test_parts_of_a_step() -> None:
    found = shares()
    work = {"kernels": 35, "copy": 12, "transfer": 8, "communication": 15}
    assert {name: found[name] for name in work} == pytest.approx({name: 0.6 * ns / 70 for name, ns in work.items()})
    # The other 40 % of the step go by the 30 ns in which the GPU has nothing to do.
    rest = {"waiting": 5, "idle_input": 10, "idle_host": 9, "idle_launch": 4, "idle_latency": 2, "idle_unknown": 0}
    assert {name: found[name] for name in rest} == pytest.approx({name: 0.4 * ns / 30 for name, ns in rest.items()})
    assert found.sum() == pytest.approx(1) and tuple(found.index) == cell_tables.PARTS


def test_idleness_that_nsys_did_not_see_has_no_cause() -> None:
    none = {name: 0.0 for name in STEP if name.startswith("idle")}
    found = shares(waiting_ns=0.0, **none)
    assert found["idle_unknown"] == pytest.approx(0.4) and found[list(cell_tables.UNOCCUPIED)].sum() == 0


def test_communication_alone_is_never_less_than_nothing() -> None:
    """10 ns of it, 5 beside other kernels and 8 waiting: of 67 ns of work none is communication, 20 are copies."""
    found = shares(communication_ns=10.0, overlap_ns=5.0, waiting_ns=8.0)
    assert found["communication"] == 0 and found["kernels"] == pytest.approx(0.6 * 47 / 67)


def test_a_step_without_work_is_idle() -> None:
    none = dict.fromkeys(("busy_share", "busy_ns", "communication_ns", "overlap_ns", "waiting_ns", "copy_ns"), 0.0)
    found = shares(**none, transfer_ns=0.0)
    assert found[list(cell_tables.WORK)].sum() == 0 and found["idle_input"] == pytest.approx(10 / 25)


def test_what_a_graph_cures() -> None:
    found = cell_tables.launch_wait_share(cell_tables.step_shares(pd.DataFrame([STEP]))).iloc[0]
    assert found == pytest.approx(0.4 * (9 + 4 + 2) / 30)


def test_the_least_that_a_cause_takes_is_what_others_leave() -> None:
    """Idle for 0.4 of 100 ns; waiting, and all idleness but for the host's, took 21 ns under nsys: 19 are left."""
    step, parts = STEP | {"step_ns": 100.0}, shares().to_dict()
    assert cell_tables.least_share(step, parts, ["idle_host"]) == pytest.approx(0.4 - 0.21)
    assert cell_tables.least_share(step, parts, ["idle_host", "idle_input"]) == pytest.approx(0.4 - 0.11)
    assert cell_tables.least_share(step | {"step_ns": 40.0}, parts, ["idle_host"]) == 0


def test_amdahls_law() -> None:
    known = {(0.5, 0.5): 4 / 3, (0.2, 1.0): 1.25, (0.0, 1.0): 1.0, (1.0, 1.0): np.inf}
    assert {given: cell_tables.amdahl_gain(*given) for given in known} == pytest.approx(known)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_do_what_they_take_off(workers: int) -> None:
    """Against the time of a step by hand."""
    shares = np.linspace(0, 1, 401)
    gains = [cell_tables.amdahl_gain(share, 1, workers) for share in shares]
    assert gains == pytest.approx([1 / max(1 - share, share / workers) for share in shares])
    assert max(gains) <= workers + 1


@pytest.mark.parametrize("left", [0.0, 1e-9, 0.9e-3])
def test_no_gain_stands_for_a_step_that_takes_no_time(left: float) -> None:
    assert cell_tables.amdahl_gain(1 - left, 1) == np.inf
    row = Verdict("cell", "recompilation", "share", 1.0, "", "", gain=np.inf, gain_low=1.0, gain_high=np.inf)
    assert row.sorting_gain == np.inf
    columns = row.columns()
    assert (columns["gain"], columns["gain_low"], columns["gain_high"]) == (None, 1.0, None)


ONE = "step,wall_ns,gpu_ns,items\n0,200,190,2\n1,100,90,2\n"


SEVERAL = "side,process,step,wall_ns,gpu_ns,items\n,0,0,200,190,2\n,0,1,100,90,2\n,1,0,210,195,2\n,1,1,110,95,2\n"


def written(folder: Path, name: str, table: str, **more: object) -> tuple[str, str]:
    """A table and its sidecar, of the cell of this name."""
    (folder / name).mkdir()
    csv, sidecar = folder / name / "train.time.csv", folder / name / "train.time.json"
    csv.write_text(table)
    write_json({**facts(2, batch=2, step_ns=150.5), **more}, sidecar)
    return str(csv), str(sidecar)


def test_each_table_has_its_cell_and_its_sidecar(tmp_path: Path) -> None:
    one, one_sidecar = written(tmp_path, "lstm", ONE)
    two, two_sidecar = written(tmp_path, "unet@bf16", SEVERAL, steps=4, items=8, processes=[{}, {}])
    found = cell_tables.read_baseline_steps([one, two], [one_sidecar, two_sidecar])
    assert [cell for cell, _, _ in found] == [{"model": "lstm", "phase": "train"},
                                              {"model": "unet@bf16", "phase": "train"}]  # fmt: skip
    assert [steps["gpu_ns"].tolist() for _, steps, _ in found] == [[190, 90], [190, 90, 195, 95]]
    assert found[1][1]["process"].tolist() == [0, 0, 1, 1] and "process" not in found[0][1]
    assert [facts["items"] for _, _, facts in found] == [4, 8]


@pytest.mark.parametrize(
    ("table", "more", "said"),
    [
        # The sidecar tells how many there were: rows that are missing at the end leave no gap among the others.
        (ONE, {"steps": 3}, r"train\.time\.csv has 2 steps, but its sidecar says 3: delete it"),
        (ONE, {"processes": [{}]}, "has no column side"),
        (SEVERAL, {"steps": 4}, "has an unknown column .side.:"),
    ],
)
def test_a_table_that_is_not_what_its_sidecar_says_is_refused(
    tmp_path: Path, table: str, more: dict, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        cell_tables.read_baseline_steps(*[[path] for path in written(tmp_path, "lstm", table, **more)])
