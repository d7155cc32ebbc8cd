"""The summary of an nsys export, on a recording of an H200 and on small exports with odd contents."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from models.harness.windows import PARTS
from workflow.scripts.lib import nsys_tables
from workflow.scripts.lib.files import DataError

KERNEL = (
    "start, end, correlationId, globalPid, demangledName, shortName, mangledName, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, registersPerThread"
)
ONE, TWO = 1 << 24, 2 << 24  # Processes, as nsys packs them into the upper bits.


def export(path: Path, kernels: list[tuple], calls: list[tuple], ranges: list[tuple]) -> Path:
    """A small export: kernels as KERNEL, calls (start, correlationId, globalTid), ranges (start, end, tid, text)."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "_Z1kv"), (2, "k()"), (3, "k")])
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({KERNEL})")
        database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 16)})", kernels)
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, correlationId, globalTid)")
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?)", calls)
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text, textId, eventType, domainId)")
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, 59, 0)", ranges)
        database.commit()
    return path


def kernel(start: int, end: int, correlation: int, process: int, grid: tuple = (1, 1, 1), block: tuple = (32, 1, 1),
           more: tuple = (0, 0, 16)) -> tuple:  # fmt: skip
    """A row of the kernel table."""
    return (start, end, correlation, process, 2, 3, 1, *grid, *block, *more)


@pytest.fixture(scope="module")
def summary(recording) -> pd.DataFrame:
    """The recording's table."""
    return nsys_tables.summarise(recording("nsys/train.sqlite"))


def test_nothing_is_lost(summary: pd.DataFrame, recording) -> None:
    with closing(sqlite3.connect(recording("nsys/train.sqlite"))) as database:
        count, total = database.execute("SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    assert (summary["launches"].sum(), summary["total_ns"].sum()) == (count, total) == (4750, 44388337)
    assert summary["share"].sum() == pytest.approx(1)


def test_agrees_with_nsys_itself(summary: pd.DataFrame, recording) -> None:
    theirs = pd.read_csv(Path(__file__).parents[1] / "data/nsys/cuda_gpu_kern_sum.csv").set_index("Name")
    ours = summary.groupby("kernel")[["launches", "total_ns"]].sum()
    assert ours["launches"].sum() * 2 == theirs["Instances"].sum()  # The summary is of twenty steps, the export of ten.
    assert set(ours.index) == set(theirs.index)


def test_backward_launches_of_another_thread_have_their_range(summary: pd.DataFrame) -> None:
    counts = summary.groupby("range")["launches"].sum().to_dict()
    assert counts == {"backward": 2490, "forward": 2060, "optimizer": 200}


def test_statistics_of_a_configuration(summary: pd.DataFrame) -> None:
    row = summary.iloc[0]
    assert row["total_ns"] == summary["total_ns"].max()
    assert row["mean_ns"] == pytest.approx(row["total_ns"] / row["launches"])
    assert row["min_ns"] <= row["median_ns"] <= row["max_ns"]


def test_equal_correlation_ids_of_two_processes_do_not_mix(tmp_path: Path) -> None:
    kernels = [kernel(100, 110, 7, ONE), kernel(100, 150, 7, TWO)]
    calls = [(50, 7, ONE + 1), (60, 7, TWO + 1)]
    ranges = [(40, 55, ONE + 1, "forward"), (58, 70, TWO + 1, "backward")]
    table = nsys_tables.summarise(export(tmp_path / "a.sqlite", kernels, calls, ranges)).set_index("range")
    assert table["total_ns"].to_dict() == {"backward": 50, "forward": 10}


def test_launch_without_a_call_has_no_range(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [kernel(100, 110, 7, ONE)], [], [(0, 200, ONE + 1, "forward")])
    assert nsys_tables.summarise(path)["range"].tolist() == [""]


def test_launch_between_ranges_has_none(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [kernel(100, 110, 7, ONE)], [(50, 7, ONE)], [(0, 40, ONE, "forward")])
    assert nsys_tables.summarise(path)["range"].tolist() == [""]


def test_the_largest_configuration_survives_packing(tmp_path: Path) -> None:
    grid, block, more = (2**31 - 1, 65535, 65535), (1024, 1024, 64), (232448, 232448, 255)
    path = export(tmp_path / "a.sqlite", [kernel(0, 1, 7, ONE, grid, block, more)], [(0, 7, ONE)], [])
    row = nsys_tables.summarise(path).iloc[0]
    assert tuple(row[name] for name in nsys_tables.CONFIGURATION) == (*grid, *block, *more)


def test_ranges_of_the_window(recording) -> None:
    with nsys_tables.opened(recording("nsys/train.sqlite")) as (database, tables):
        found = nsys_tables.ranges_of(database, tables, ("step", *PARTS))
    assert found["name"].value_counts().to_dict() == {"step": 10, "forward": 10, "backward": 10, "optimizer": 10}


def test_trace_without_launches_has_columns_but_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    table = nsys_tables.summarise(path)
    assert table.empty and list(table.columns) == nsys_tables.COLUMNS


def test_other_files_are_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("no database, but long enough to be looked at" * 30)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE mine (id)")
    for path in (text, other):
        with pytest.raises(DataError, match=path.name):
            nsys_tables.summarise(path)
