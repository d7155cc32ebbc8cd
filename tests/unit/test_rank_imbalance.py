"""ranks and profile_ranks: what the processes of a cell on several GPUs did, by their traces."""

import re
from pathlib import Path

import pandas as pd
import pytest

from profzoo.collect import profile_ranks
from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tables import rank_imbalance
from profzoo.tools.nsys import ranks as nsys_ranks
from tests.unit.test_nsys_steps import trace

STEP = [("step", 0, 100)]
TALKING = 2


def two(folder: Path) -> pd.DataFrame:
    """A cell's two processes: the second computes for longer, and the first's communication waits for it."""
    trace(folder, STEP, kernels=[(10, 40, 1), (30, 90, 2, TALKING)], name="node.a.0.sqlite")
    trace(folder, STEP, kernels=[(10, 60, 1), (50, 90, 2, TALKING)], name="node.b.1.sqlite")
    return nsys_ranks.tabulate_ranks(sorted(folder.glob("*.sqlite"), reverse=True), 2)


def test_each_process_has_a_row(tmp_path: Path) -> None:
    table = two(tmp_path)
    assert list(table.columns) == rank_imbalance.COLUMNS
    assert table[["host", "rank"]].to_numpy().tolist() == [["node.a", 0], ["node.b", 1]]
    assert table["compute_ns"].tolist() == [30, 50] and table["communication_ns"].tolist() == [60, 40]
    assert table["overlap_ns"].tolist() == [10, 10] and table["exposed_ns"].tolist() == [50, 30]
    assert (table["busy_ns"] == table["compute_ns"] + table["exposed_ns"]).all()


def test_a_process_without_a_trace_is_named(tmp_path: Path) -> None:
    trace(tmp_path, STEP, kernels=[(10, 40, 1)], name="node.1.sqlite")
    with pytest.raises(DataError, match=re.escape("3 processes, but no trace of rank 0, 2")):
        nsys_ranks.tabulate_ranks(tmp_path.glob("*.sqlite"), 3)


def test_processes_are_held_against_their_own_cell(tmp_path: Path) -> None:
    alone = pd.DataFrame({**dict.fromkeys(rank_imbalance.COLUMNS, 0), "host": "h", "wall_ns": 10}, index=[0])
    cells = [({"model": "a", "phase": "train"}, two(tmp_path)), ({"model": "b", "phase": "train"}, alone)]
    table = rank_imbalance.across_cells(cells)
    assert table["model"].tolist() == ["a", "a", "b"]
    assert table["imbalance"].tolist()[:2] == [-0.25, 0.25] and table["exposed_share"].tolist() == [0.5, 0.3, 0]
    assert table["waiting_ns"].tolist() == [20, 0, 0]
    assert table["overlap_share"].tolist()[:2] == pytest.approx([1 / 6, 1 / 4])
    # Without kernels, as on a CPU, nothing is known.
    assert table.loc[2, ["imbalance", "overlap_share"]].isna().all()


def test_without_cells_the_table_is_empty() -> None:
    assert rank_imbalance.across_cells([]).empty


@pytest.mark.parametrize(
    ("which", "rank", "runs"),
    [
        ("first", 0, ["ncu", "-x", "python", "p"]),
        ("first", 1, ["python", "p"]),
        ("all", 1, ["ncu", "-x", "python", "p"]),
    ],
)
def test_the_first_process_is_profiled_or_all(which: str, rank: int, runs: list[str]) -> None:
    assert profile_ranks.rank_words(which, ["ncu", "-x", "--", "python", "p"], rank) == runs


def told(*rows: tuple[int, int, int, int], phase: str = "train") -> tuple[dict[str, str], pd.DataFrame]:
    """A cell's processes by wall, busy, computing and communication time in ns, half of the last beside others."""
    table = pd.DataFrame(rows, columns=["wall_ns", "busy_ns", "compute_ns", "communication_ns"])
    fixed = {**dict.fromkeys(rank_imbalance.COLUMNS, 0), "host": "h", "steps": 1}
    table = pd.DataFrame([{**fixed, **row} for row in table.to_dict("records")]).assign(rank=range(len(rows)))
    table["overlap_ns"] = table["communication_ns"] / 2
    table["exposed_ns"] = table["communication_ns"] - table["overlap_ns"]
    return {"model": "a", "phase": phase}, table


def test_shares_are_of_the_step_and_imbalance_is_from_the_mean() -> None:
    """Computing 30, 50 and 100 ns: 60 on average, so that they are 50 % and 17 % below it and 67 % above."""
    table = rank_imbalance.across_cells([told((200, 90, 30, 60), (200, 90, 50, 40), (200, 110, 100, 20))])
    assert table["imbalance"].tolist() == pytest.approx([-0.5, -1 / 6, 2 / 3])
    assert table["communication_share"].tolist() == pytest.approx([0.3, 0.2, 0.1])
    assert table["exposed_share"].tolist() == pytest.approx([0.15, 0.1, 0.05])
    assert table["overlap_share"].tolist() == pytest.approx([0.5] * 3) and table["waiting_ns"].tolist() == [40, 20, 0]


def test_phases_of_a_model_are_cells_of_their_own() -> None:
    cells = [told((100, 50, 30, 60)), told((100, 50, 10, 20), phase="inference")]
    table = rank_imbalance.across_cells(cells)
    assert table["imbalance"].tolist() == [0, 0] and table["waiting_ns"].tolist() == [0, 0]


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = rank_imbalance.across_cells([told((200, 90, 30, 60), (200, 90, 50, 40))])
    write_csv(made, tmp_path / "ranks.csv")
    found = rank_imbalance.read([str(tmp_path / "ranks.csv")])
    assert found["compute_ns"].tolist() == [30, 50] and found["waiting_ns"].tolist() == [20, 0]
    assert rank_imbalance.read([]).empty
