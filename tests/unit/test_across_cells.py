"""across_cells: disagreement of the tools is flagged and explained; processes of a cell are held against each other."""

import re
from pathlib import Path

import pandas as pd
import pytest

from profzoo.collect import profile_ranks
from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tables import across_cells
from profzoo.tools.nsys.steps import ranks as nsys_ranks
from tests.unit.test_nsys_steps import trace

NO_COVERAGE = pd.DataFrame(columns=["model", "phase", "other_choice", "missing"])


def agreement(**changes: float) -> pd.DataFrame:
    """A cell of 1,000 launches of 5 µs, on which the tools agree but for the changes."""
    row = {"model": "m", "phase": "train", "nsys_launches": 1000.0, "ncu_launches": 1000.0, "nsys_gpu_ns": 5e6,
           "ncu_gpu_ns": 5e6} | changes  # fmt: skip
    for measure in ("launches", "gpu_ns"):
        values = [row[f"{tool}_{measure}"] for tool in ("nsys", "ncu")]
        row[f"{measure}_spread"] = (max(values) - min(values)) / max(values)
    return pd.DataFrame([row])


def explained(table: pd.DataFrame, coverage: pd.DataFrame = NO_COVERAGE) -> tuple[str, str]:
    row = across_cells.explain_disagreements(table, coverage).iloc[0]
    return row["flag"], row["cause"]


@pytest.mark.parametrize(
    ("launches", "time", "flag"), [(0.02, 0.1, ""), (0.021, 0.1, "launches"), (0.02, 0.101, "time")]
)
def test_what_is_at_the_bound_is_no_disagreement(launches: float, time: float, flag: str) -> None:
    assert explained(agreement().assign(launches_spread=launches, gpu_ns_spread=time))[0] == flag


@pytest.mark.parametrize(
    ("more", "known"), [(-200.0, False), (299.0, False), (300.0, True), (1500.0, True), (1501.0, False)]
)
def test_what_a_launch_takes_longer_alone_has_bounds(more: float, known: bool) -> None:
    """1,000 launches that take 1 µs under nsys, and so many ns more under ncu."""
    flag, cause = explained(agreement(nsys_gpu_ns=1e6, ncu_gpu_ns=1e6 + 1e3 * more))
    said = f"under ncu each launch runs alone and takes {more / 1e3:.1f} µs more, beside 1.0 µs"
    assert flag == "time" and cause.startswith(said if known else across_cells.UNKNOWN)


def test_the_least_of_the_other_tools_is_what_ncu_is_held_against() -> None:
    """5.0 and 5.8 µs by the others, 6.0 by ncu: 1.0 more than the least."""
    _, cause = explained(agreement(ncu_gpu_ns=6e6).assign(torch_gpu_ns=5.8e6))
    assert "takes 1.0 µs more, beside 5.0 µs" in cause


def test_different_launches_without_different_kernels() -> None:
    assert explained(agreement(ncu_launches=900.0, ncu_gpu_ns=4e6)) == ("launches, time", across_cells.UNKNOWN)


def test_different_kernels_explain_both() -> None:
    coverage = pd.DataFrame([{"model": "m", "phase": "train", "other_choice": True, "missing": "wgrad; gemm"}])
    flag, cause = explained(agreement(ncu_launches=900.0), coverage)
    assert flag == "launches" and cause.startswith("the runs launched different kernels (wgrad; gemm)")


def test_cells_of_one_tool_are_not_flagged() -> None:
    table = agreement().drop(columns=["ncu_launches", "ncu_gpu_ns"])
    assert explained(table.assign(launches_spread=float("nan"), gpu_ns_spread=float("nan"))) == ("", "")


STEP = [("step", 0, 100)]


TALKING = 2


def two(folder: Path) -> pd.DataFrame:
    """A cell's two processes: the second computes for longer, and the first's communication waits for it."""
    trace(folder, STEP, kernels=[(10, 40, 1), (30, 90, 2, TALKING)], name="node.a.0.sqlite")
    trace(folder, STEP, kernels=[(10, 60, 1), (50, 90, 2, TALKING)], name="node.b.1.sqlite")
    return nsys_ranks.tabulate_ranks(sorted(folder.glob("*.sqlite"), reverse=True), 2)


def test_each_process_has_a_row(tmp_path: Path) -> None:
    table = two(tmp_path)
    assert list(table.columns) == across_cells.COLUMNS
    assert table[["host", "rank"]].to_numpy().tolist() == [["node.a", 0], ["node.b", 1]]
    assert table["compute_ns"].tolist() == [30, 50] and table["communication_ns"].tolist() == [60, 40]
    assert table["overlap_ns"].tolist() == [10, 10] and table["exposed_ns"].tolist() == [50, 30]
    assert (table["busy_ns"] == table["compute_ns"] + table["exposed_ns"]).all()


def test_a_process_without_a_trace_is_named(tmp_path: Path) -> None:
    trace(tmp_path, STEP, kernels=[(10, 40, 1)], name="node.1.sqlite")
    with pytest.raises(DataError, match=re.escape("3 processes, but no trace of rank 0, 2")):
        nsys_ranks.tabulate_ranks(tmp_path.glob("*.sqlite"), 3)


def test_processes_are_held_against_their_own_cell(tmp_path: Path) -> None:
    alone = pd.DataFrame({**dict.fromkeys(across_cells.COLUMNS, 0), "host": "h", "wall_ns": 10}, index=[0])
    cells = [({"model": "a", "phase": "train"}, two(tmp_path)), ({"model": "b", "phase": "train"}, alone)]
    table = across_cells.across_cells(cells)
    assert table["model"].tolist() == ["a", "a", "b"]
    assert table["imbalance"].tolist()[:2] == [-0.25, 0.25] and table["exposed_share"].tolist() == [0.5, 0.3, 0]
    assert table["waiting_ns"].tolist() == [20, 0, 0]
    assert table["overlap_share"].tolist()[:2] == pytest.approx([1 / 6, 1 / 4])
    # Without kernels, as on a CPU, nothing is known.
    assert table.loc[2, ["imbalance", "overlap_share"]].isna().all()


def test_the_first_process_is_profiled_or_all() -> None:
    profiled, plain = ["ncu", "-x", "python", "p"], ["python", "p"]
    for which, rank, runs in (("first", 0, profiled), ("first", 1, plain), ("all", 1, profiled)):
        assert profile_ranks.rank_words(which, ["ncu", "-x", "--", "python", "p"], rank) == runs


def told(*rows: tuple[int, int, int, int], phase: str = "train") -> tuple[dict[str, str], pd.DataFrame]:
    """A cell's processes by wall, busy, computing and communication time in ns, half of the last beside others."""
    table = pd.DataFrame(rows, columns=["wall_ns", "busy_ns", "compute_ns", "communication_ns"])
    fixed = {**dict.fromkeys(across_cells.COLUMNS, 0), "host": "h", "steps": 1}
    table = pd.DataFrame([{**fixed, **row} for row in table.to_dict("records")]).assign(rank=range(len(rows)))
    table["overlap_ns"] = table["communication_ns"] / 2
    table["exposed_ns"] = table["communication_ns"] - table["overlap_ns"]
    return {"model": "a", "phase": phase}, table


def test_shares_are_of_the_step_and_imbalance_is_from_the_mean() -> None:
    """Computing 30, 50 and 100 ns: 60 on average, so that they are 50 % and 17 % below it and 67 % above."""
    table = across_cells.across_cells([told((200, 90, 30, 60), (200, 90, 50, 40), (200, 110, 100, 20))])
    assert table["imbalance"].tolist() == pytest.approx([-0.5, -1 / 6, 2 / 3])
    assert table["communication_share"].tolist() == pytest.approx([0.3, 0.2, 0.1])
    assert table["exposed_share"].tolist() == pytest.approx([0.15, 0.1, 0.05])
    assert table["overlap_share"].tolist() == pytest.approx([0.5] * 3) and table["waiting_ns"].tolist() == [40, 20, 0]


def test_phases_of_a_model_are_cells_of_their_own() -> None:
    cells = [told((100, 50, 30, 60)), told((100, 50, 10, 20), phase="inference")]
    table = across_cells.across_cells(cells)
    assert table["imbalance"].tolist() == [0, 0] and table["waiting_ns"].tolist() == [0, 0]
    assert across_cells.across_cells([]).empty


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = across_cells.across_cells([told((200, 90, 30, 60), (200, 90, 50, 40))])
    write_csv(made, tmp_path / "ranks.csv")
    found = across_cells.read_imbalance([str(tmp_path / "ranks.csv")])
    assert found["compute_ns"].tolist() == [30, 50] and found["waiting_ns"].tolist() == [20, 0]
    assert across_cells.read_imbalance([]).empty
