"""The summary of an nsys export, on a recording of an H200 and on small exports with odd contents."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.range_names import PARTS, make_nvtx_name
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys import ranks as nsys_ranks
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace

KERNEL = (
    "start, end, correlationId, globalPid, demangledName, shortName, mangledName, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, registersPerThread, graphNodeId"
)
# As nsys 2025 creates it, where it traces CUDA graphs whole.
GRAPH_TRACE = """CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL)"""
ONE, TWO = 1 << 24, 2 << 24  # Processes, as nsys packs them into the upper bits.


def export(
    path: Path,
    kernels: list[tuple],
    calls: list[tuple],
    ranges: list[tuple],
    graphs: list[tuple] = (),
    ends: int | None = None,
) -> Path:
    """A small export: kernels as KERNEL, or without the last where a call of its own launched them, calls (start,
    correlationId, globalTid), ranges (start, end, tid, text).

    graphs: (start, end, correlationId, globalPid, graphId) of those traced whole; ends: when the trace does.
    """
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        names = [(1, "_Z1kv"), (2, "k()"), (3, "k"), (4, "cudaLaunchKernel_v7000")]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({KERNEL})")
        rows = [(*row, None)[:17] for row in kernels]
        database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 17)})", rows)
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, globalTid, nameId)")
        rows = [(start, start + 1, *more, 4) for start, *more in calls]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text, textId, eventType, domainId)")
        rows = [(start, end, thread, make_nvtx_name(name)) for start, end, thread, name in ranges]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, 59, 0)", rows)
        if graphs:
            database.execute(GRAPH_TRACE)
            rows = [(start, end, 0, 1, None, 7, *more, 900) for start, end, *more in graphs]
            database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({', '.join('?' * 10)})", rows)
        if ends is not None:
            database.execute("CREATE TABLE ANALYSIS_DETAILS (globalVid, duration, startTime, stopTime)")
            database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (1, ?, 5000, ?)", (ends, 5000 + ends))
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


def test_a_launch_with_two_calls_counts_once_and_from_the_first(tmp_path: Path) -> None:
    # The runtime's call and the driver's inside it, in either order of rows.
    ranges = [(40, 55, ONE + 1, "forward"), (56, 70, ONE + 1, "backward")]
    for number, calls in enumerate(([(50, 7, ONE + 1), (60, 7, ONE + 1)], [(60, 7, ONE + 1), (50, 7, ONE + 1)])):
        table = nsys_tables.summarise(
            export(tmp_path / f"{number}.sqlite", [kernel(100, 110, 7, ONE), kernel(120, 150, 8, ONE)], calls, ranges)
        )
        assert table["launches"].sum() == 2 and table["total_ns"].sum() == 40
        assert table.set_index("range")["total_ns"].to_dict() == {"forward": 10, "": 30}


def test_no_table_depends_on_the_order_of_rows(recording, tmp_path: Path) -> None:
    """Exports of nsys 2025.6 and later are not in order of time."""
    exported = recording("nsys/train.sqlite")
    first, steps = nsys_tables.summarise(exported), nsys_steps.where_time_goes(exported)
    for seed in (1, 2):
        other = shuffled(exported, tmp_path / f"node.{seed - 1}.sqlite", seed)
        pd.testing.assert_frame_equal(nsys_tables.summarise(other), first, check_exact=True)
        pd.testing.assert_frame_equal(nsys_steps.where_time_goes(other), steps, check_exact=True)
    processes = nsys_ranks.tabulate_ranks(tmp_path.glob("*.sqlite"), 2)
    assert processes["rank"].tolist() == [0, 1] and processes[nsys_ranks.TIMES].nunique().eq(1).all()


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """A copy of an export with the rows of every table in another order."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        for name, statement in old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            new.execute(statement)
            rows = old.execute(f"SELECT * FROM {name}").fetchall()
            random.Random(seed).shuffle(rows)
            if rows:
                new.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        new.commit()
    return target


def test_a_graph_that_was_traced_whole_has_a_row_and_its_time_adds_up(tmp_path: Path) -> None:
    kernels = [kernel(100, 110, 7, ONE), kernel(300, 320, 9, ONE)]
    calls = [(50, 7, ONE + 1), (120, 8, ONE + 1), (290, 9, ONE + 1), (330, 10, ONE + 1), (400, 11, ONE + 1)]
    ranges = [(40, 60, ONE + 1, "forward"), (110, 350, ONE + 1, "backward")]
    # The last could not be timed, and what has kernels of its own is no row but theirs.
    graphs = [(130, 230, 8, ONE, 4), (340, 370, 10, ONE, 4), (0, 0, 11, ONE, 4), (300, 320, 9, ONE, 5)]
    path = export(tmp_path / "a.sqlite", kernels, calls, ranges, graphs)
    table = nsys_tables.summarise(path)
    assert table["total_ns"].sum() == 10 + 20 + 100 + 30 and table["share"].sum() == pytest.approx(1)
    row = table[table["function"] == "CUDA graph"].iloc[0]
    assert (row["kernel"], row["range"], row["launches"], row["total_ns"]) == ("CUDA graph 4", "backward", 2, 130)
    assert (row["min_ns"], row["mean_ns"], row["max_ns"], row["std_ns"]) == (30, 65, 100, 35)
    assert row["mangled"] == "CUDA graph 4" and not row[nsys_launches.CONFIGURATION].any()
    assert table["launches"].sum() == 4 and nsys_tables.graph_share(table) == pytest.approx(130 / 160)
    assert nsys_tables.graph_share(table[table["function"] == "k"]) == 0


def test_nothing_but_graphs(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [], [(5, 1, ONE)], [(0, 9, ONE, "forward")], [(10, 30, 1, ONE, 2)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    table = nsys_tables.summarise(path)
    assert table[["kernel", "range", "total_ns", "share"]].to_numpy().tolist() == [["CUDA graph 2", "forward", 20, 1.0]]


# A whole run: a launch before any step, three steps of which the last two are the window's, and another that is cut off.
RUN = [
    (100, 190, ONE + 1, "step"), (110, 180, ONE + 1, "forward"), (195, 500, ONE + 1, "window"),
    (200, 290, ONE + 1, "step"), (210, 280, ONE + 1, "forward"), (300, 390, ONE + 1, "step"),
    (310, 380, ONE + 1, "forward"), (400, 500, ONE + 1, "step"), (410, 500, ONE + 1, "forward"),
]  # fmt: skip
LAUNCHED = (50, 120, 220, 285, 320, 420)


def run(path: Path, ranges: list[tuple] = RUN, lost: tuple[int, ...] = (), ends: int | None = 500) -> Path:
    """That run, with a kernel of 10 ns a launch but for those lost."""
    calls = [(start, start, ONE + 1) for start in LAUNCHED]
    kernels = [kernel(start + 5, start + 15, start, ONE) for start in LAUNCHED if start not in lost]
    return export(path, kernels, calls, ranges, ends=ends)


def by_range(table: pd.DataFrame) -> dict[str, int]:
    """Launches by range."""
    return table.groupby("range")["launches"].sum().to_dict()


def test_of_a_whole_run_only_the_windows_whole_steps_count(tmp_path: Path) -> None:
    path = run(tmp_path / "a.sqlite")
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (2, True)
    table = nsys_tables.summarise(path, whole_run=True)
    # Of the window: 220 and 320 in forward, 285 after a step's parts; the rest is start-up, warm-up, cut off.
    assert by_range(table) == {"forward": 2, "": 1, nsys_tables.OUTSIDE: 3}
    counted = nsys_tables.launches_in_steps(table)
    assert counted["launches"].sum() == 3 and counted["share"].sum() == pytest.approx(1)
    assert table.loc[table["range"] == nsys_tables.OUTSIDE, "share"].isna().all()
    assert by_range(nsys_tables.summarise(path)) == {"forward": 4, "": 2}
    row = nsys_steps.where_time_goes(path, whole_run=True).iloc[0]
    assert (row["steps"], row["launches"], row["wall_ns"]) == (1, 1, 90)  # Without the window's first.


def test_a_range_that_was_never_closed_is_no_whole_step(tmp_path: Path) -> None:
    ranges = [(start, None if end == 500 else end, tid, name) for start, end, tid, name in RUN]
    assert nsys_trace.count_traced_steps(run(tmp_path / "a.sqlite", ranges, ends=None), whole_run=True) == (2, True)


def test_a_step_whose_work_was_cut_off_is_no_whole_step(tmp_path: Path) -> None:
    # The CPU was through with the window's second step, and the GPU was not.
    path = run(tmp_path / "a.sqlite", lost=(320, 420))
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (1, True)
    assert by_range(nsys_tables.summarise(path, whole_run=True)) == {"forward": 1, "": 1, nsys_tables.OUTSIDE: 2}
    # One without a kernel among others, as where it was captured into a graph, cuts nothing off.
    path = run(tmp_path / "b.sqlite", lost=(220,))
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (2, True)


def test_a_trace_that_begins_within_the_window_or_ends_before_it(tmp_path: Path) -> None:
    within = [row for row in RUN if row[3] != "window" and row[0] > 195]
    assert nsys_trace.count_traced_steps(run(tmp_path / "a.sqlite", within), whole_run=True) == (2, False)
    assert nsys_trace.count_traced_steps(run(tmp_path / "b.sqlite", RUN[:2], ends=190), whole_run=True) == (0, False)
    assert nsys_trace.count_traced_steps(run(tmp_path / "c.sqlite", []), whole_run=True) == (0, False)


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
    assert tuple(row[name] for name in nsys_launches.CONFIGURATION) == (*grid, *block, *more)


def test_ranges_of_the_window(recording) -> None:
    with nsys_trace.open_export(recording("nsys/train.sqlite")) as (database, tables):
        found = nsys_trace.read_ranges(database, tables, ("step", *PARTS))
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
