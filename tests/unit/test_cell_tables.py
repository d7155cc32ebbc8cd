"""cell_tables: per-step sums across cells and tools, whatever their windows; what was not measured stays empty."""

import pandas as pd
import pytest

from profzoo.tables import cell_tables, step_shares, steps_per_export
from profzoo.tables.rank_imbalance import across_cells
from profzoo.tools.ncu.derived_metrics import GPU_TIME

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


@pytest.mark.parametrize(
    ("path", "cell"),
    [
        ("results/unet/train.time.csv", CELL),
        ("/a/b.c/lstm@bf16/inference.ncu.full.csv", {"model": "lstm@bf16", "phase": "inference"}),
    ],
)
def test_cell_of(path: str, cell: dict) -> None:
    assert cell_tables.cell_of(path) == cell


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


def test_the_step_is_that_of_settled_steps() -> None:
    """As a process of torch.profiler's baseline on an H200 had them in ms: the first were slowed down by another start."""
    ms = [20.9, 18.6, 22.4, 93.1, 98.3, *[14.6, 15.0, 14.8] * 5]
    row = cell_tables.cells([(CELL, pd.DataFrame({"wall_ns": ms, "gpu_ns": ms}) * 1e6, facts(20))]).iloc[0]
    assert row["step_ns"] == pytest.approx(14.8e6) and row["unsteady"] == ""
    assert row["step_low_ns"] <= row["step_ns"] <= row["step_high_ns"]


def test_kernels_are_per_step_and_shares_of_each_tool_add_up() -> None:
    table = cell_tables.activity(EXPORTED)
    assert table.groupby("tool")["share"].sum().tolist() == pytest.approx([1, 1, 1])
    sums = table.groupby("tool")[["launches_per_step", "ns_per_step"]].sum()
    assert sums.to_dict("index") == {
        "nsys": {"launches_per_step": 4, "ns_per_step": 100},
        "torch": {"launches_per_step": 4, "ns_per_step": 100},
        "ncu": {"launches_per_step": 4, "ns_per_step": 200},
    }
    for _, group in table.groupby("tool"):
        assert group["ns_per_step"].is_monotonic_decreasing


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


def test_agreement_of_three_tools() -> None:
    other = {"model": "lstm", "phase": "train"}
    walls = [("nsys", CELL, 150.0), ("torch", CELL, 300.0), ("torch", other, 100.0)]
    table = cell_tables.agreement(baseline(CELL, other), cell_tables.activity(EXPORTED), walls)
    seen, unseen = table.iloc[0], table.iloc[1]
    assert (seen["launches_spread"], seen["gpu_ns_spread"]) == (0, 0.5)
    assert (seen["nsys_launches"], seen["ncu_gpu_ns"], seen["nsys_slowdown"], seen["torch_slowdown"]) == (
        4,
        200,
        1.5,
        3,
    )
    assert pd.isna(unseen["launches_spread"]) and pd.isna(unseen["nsys_launches"]) and pd.isna(unseen["nsys_slowdown"])
    assert unseen["torch_slowdown"] == 1


def test_one_tool_agrees_with_nobody() -> None:
    table = cell_tables.agreement(baseline(CELL), cell_tables.activity(EXPORTED[:1]), [])
    assert table["launches_spread"].isna().all() and "torch_launches" not in table and "nsys_slowdown" not in table


def test_agreement_of_a_cpu_has_no_launches() -> None:
    kernels = cell_tables.activity([("torch", CELL, TORCH, facts(3, "cpu"))])
    table = cell_tables.agreement(baseline(CELL), kernels, [("torch", CELL, 150.0)])
    assert table["gpu_ns_spread"].isna().all() and table["torch_slowdown"].tolist() == [1.5]


def test_waiting_for_other_processes_is_no_work_of_the_gpu() -> None:
    spread, alone = {"model": "a@two", "phase": "train"}, {"model": "a", "phase": "train"}
    row = pd.DataFrame(
        {"process": 1, "steps": 9, "wall_ns": 200.0, "busy_ns": 90.0, "communication_ns": 50.0, "overlap_ns": 20.0},
        index=[0],
    )
    ranks = pd.DataFrame([{**spread, "rank": rank, "waiting_ns": waiting} for rank, waiting in ((1, 0.0), (0, 40.0))])
    table = cell_tables.steps(baseline(alone, spread), [(alone, row), (spread, row)], ranks)
    # Of 40 ns no more than the 30 in which there was nothing beside.
    assert table["waiting_ns"].tolist() == [0, 30] and table["busy_share"].tolist() == [0.9, 0.6]
    assert cell_tables.steps(baseline(alone), [(alone, row)], across_cells([]))["waiting_ns"].tolist() == [0]


def test_a_step_without_work_on_a_gpu_has_no_idle_time_of_one() -> None:
    """nsys traces cells on a CPU too; one process of several may have had nothing to do."""
    row = pd.DataFrame(
        {
            "process": [1, 2],
            "steps": 9,
            "wall_ns": 200.0,
            "busy_ns": [0.0, 0.0],
            "communication_ns": 0.0,
            "overlap_ns": 0.0,
        }
    )
    used = row.assign(busy_ns=[0.0, 90.0])
    other = {"model": "a", "phase": "train"}
    table = cell_tables.steps(baseline(CELL, other), [(CELL, row), (other, used)], across_cells([]))
    assert table["model"].tolist() == ["a", "a"] and table["busy_share"].tolist() == [0, 0.9]


def test_where_a_step_goes_by_hand() -> None:
    """GPU busy for 90 of 200 ns under nsys: 50 of NCCL, 20 of them beside others, and 25 of them no more than waiting."""
    cell, other = CELL, {"model": "lstm", "phase": "train"}
    row = pd.DataFrame({"process": [1], "steps": [9], "wall_ns": [200.0], "busy_ns": [90.0], "communication_ns": [50.0],
                        "overlap_ns": [20.0]})  # fmt: skip
    ranks = pd.DataFrame([{**cell, "rank": 0, "waiting_ns": 25.0}, {**cell, "rank": 1, "waiting_ns": 9.0}])
    timed = baseline(cell, other).assign(step_ns=[100.0, 50.0], cpu_taken_share=[0.02, None])
    table = cell_tables.steps(timed, [(cell, row), (other, row)], ranks)
    assert table["waiting_ns"].tolist() == [25, 0]
    # 65 of 100, and 90 of 50, which is all of it; of 200 under nsys.
    assert table["busy_share"].tolist() == [0.65, 1] and table["nsys_busy_share"].tolist() == [0.325, 0.45]
    assert table["step_median_ns"].tolist() == [90, 90] and table["cpu_taken_share"].tolist()[0] == 0.02
    # Copies for 20, 5 of them to or from the host; kernels for what is left.
    traced = table.head(1).assign(copy_ns=20.0, transfer_ns=5.0, idle_ns=110.0, idle_input_ns=55.0, idle_host_ns=55.0,
                                  idle_synchronisation_ns=0.0, idle_latency_ns=0.0, idle_launch_ns=0.0)  # fmt: skip
    shares = step_shares.step_shares(traced).iloc[0]
    known = {"kernels": 0.40, "copy": 0.15, "transfer": 0.05, "communication": 0.05, "waiting": 0.35 * 25 / 135,
             "idle_input": 0.35 * 55 / 135, "idle_host": 0.35 * 55 / 135}  # fmt: skip
    assert shares.to_dict() == pytest.approx({**dict.fromkeys(step_shares.PARTS, 0.0), **known})
    assert step_shares.launch_wait_share(step_shares.step_shares(traced)).tolist() == pytest.approx([0.35 * 55 / 135])
    assert step_shares.amdahl(0.5, 0.5) == pytest.approx(4 / 3) and step_shares.amdahl(1, 1) == pytest.approx(1e9)


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
