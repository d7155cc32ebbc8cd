"""The summary of an nsys export: on a recording of an H200, and on small exports whose answers are known."""

import gzip
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.range_names import PARTS, make_nvtx_name
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.events.launches import (
    find_ranges,
    is_outside_steps,
    launch_times,
    read_step_launches,
    step_positions,
)
from profzoo.tools.nsys.steps import steps as nsys_steps
from tests.conftest import DATA

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
    # Backward launches are of another thread.
    counts = summary.groupby("range")["launches"].sum().to_dict()
    assert counts == {"backward": 2490, "forward": 2060, "optimizer": 200}
    with nsys_trace.open_trace(recording("nsys/train.sqlite")) as trace:
        found = nsys_trace.read_ranges(trace, ("step", *PARTS))
    assert found["name"].value_counts().to_dict() == {"step": 10, "forward": 10, "backward": 10, "optimizer": 10}


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
    # The last could not be timed, and what has kernels of its own is not a row but theirs.
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


def test_a_trace_that_begins_within_the_window_or_ends_before_it(tmp_path: Path) -> None:
    within = [row for row in RUN if row[3] != "window" and row[0] > 195]
    assert nsys_trace.count_traced_steps(run(tmp_path / "a.sqlite", within), whole_run=True) == (2, False)
    assert nsys_trace.count_traced_steps(run(tmp_path / "b.sqlite", RUN[:2], ends=190), whole_run=True) == (0, False)
    assert nsys_trace.count_traced_steps(run(tmp_path / "c.sqlite", []), whole_run=True) == (0, False)


def test_the_largest_configuration_survives_packing(tmp_path: Path) -> None:
    grid, block, more = (2**31 - 1, 65535, 65535), (1024, 1024, 64), (232448, 232448, 255)
    path = export(tmp_path / "a.sqlite", [kernel(0, 1, 7, ONE, grid, block, more)], [(0, 7, ONE)], [])
    row = nsys_tables.summarise(path).iloc[0]
    assert tuple(row[name] for name in nsys_launches.CONFIGURATION) == (*grid, *block, *more)


def test_trace_without_launches_has_columns_but_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    table = nsys_tables.summarise(path)
    assert table.empty and list(table.columns) == nsys_tables.COLUMNS


def test_a_process_opens_an_export_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: opened.append(given[0]) or plain(*given, **named))
    paths = [tmp_path / f"{name}.sqlite" for name in "ab"]
    for path in paths:
        path.write_bytes(gzip.decompress((DATA / "nsys/train.sqlite.gz").read_bytes()))
    with nsys_trace.open_trace(paths[0]) as first, nsys_trace.open_trace(str(paths[0])) as again:
        assert first is again
    count = len(opened)
    with nsys_trace.open_trace(paths[0]) as first, nsys_trace.open_trace(paths[1]) as other:
        # What is still in use stays open.
        assert len(opened) > count and first is not other and len(first.operations) == len(other.operations) > 5000
    os.utime(paths[1], ns=(1, 1))
    with nsys_trace.open_trace(paths[1]) as anew:
        assert anew is not other


def test_other_files_are_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("no database, but long enough to be looked at" * 30)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE mine (id)")
    for path in (text, other, tmp_path / "none.sqlite"):
        with pytest.raises(DataError, match=path.name):
            nsys_tables.summarise(path)


@pytest.mark.parametrize(
    ("launched", "step"),
    [
        # When a call was made: from a step's first ns to before its end.
        (99, -1), (100, 0), (199, 0), (200, 1), (299, 1), (300, -1), (450, 2), (500, -1),
        # Of a kernel without a call, -1 less when it began.
        (-1 - 99, -1), (-1 - 100, 0), (-1 - 199, 0), (-1 - 299, 1), (-1 - 300, -1),
    ],
)  # fmt: skip
def test_a_launch_is_in_the_step_in_which_it_was_made_or_began(launched: int, step: int) -> None:
    steps = pd.DataFrame({"process": ONE, "start": [100, 200, 400], "end": [200, 300, 500]})
    launches = pd.DataFrame({"process": [ONE, TWO], "launched": [launched, launched]})
    # Another process has steps of its own.
    assert step_positions(launches, steps).tolist() == [step, -1]
    assert is_outside_steps(launches, steps).tolist() == [step < 0, True]
    moment = launched if launched >= 0 else -1 - launched
    assert launch_times(launches).tolist() == [moment, moment]


def test_a_launch_is_in_the_range_in_which_it_was_made() -> None:
    parts = pd.DataFrame({"name": ["data", "graph"], "process": ONE, "start": [100, 200], "end": [150, 300]})
    launches = pd.DataFrame({"process": ONE, "launched": [100, 149, 150, 200, 299, 300, -1 - 120]})
    names = np.array(["", *nsys_tables.LAUNCHING])[find_ranges(launches, parts)]
    assert names.tolist() == ["data", "data", "", "graph", "graph", "", ""]


def test_launches_by_step_by_hand(tmp_path: Path) -> None:
    ranges = [(100, 200, ONE + 1, "step"), (110, 150, ONE + 1, "loss"), (200, 300, ONE + 1, "step")]
    kernels = [
        kernel(160, 165, 2, ONE, (2, 1, 1)),
        kernel(120, 130, 1, ONE),
        kernel(310, 340, 3, ONE),
        kernel(90, 95, 9, ONE),
    ]
    calls = [(115, 1, ONE + 1), (155, 2, ONE + 1), (290, 3, ONE + 1), (80, 9, ONE + 1)]
    # A graph that was traced whole, of number 0, is not a kernel.
    path = export(tmp_path / "a.sqlite", kernels, [*calls, (295, 8, ONE + 1)], ranges, [(350, 360, 8, ONE, 0)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId DEFAULT 7")
        database.commit()
    table = read_step_launches(path)
    assert table[
        ["step", "start_ns", "ns", "range", "stream", "grid_x", "kernel", "mangled", "function"]
    ].to_numpy().tolist() == [
        [0, 120, 10, "loss", 7, 1, "k()", "_Z1kv", "k"],
        [0, 160, 5, "", 7, 2, "k()", "_Z1kv", "k"],
        [1, 310, 30, "", 7, 1, "k()", "_Z1kv", "k"],
    ]
    assert table["process"].tolist() == [ONE] * 3


def test_statistics_of_launches_by_hand(tmp_path: Path) -> None:
    """Times 2, 4, 4, 10 of one configuration, and 20 of another: the deviation is that of the population."""
    kernels = [kernel(100 * place, 100 * place + ns, place, ONE) for place, ns in enumerate((4, 10, 2, 4), 1)]
    kernels.append(kernel(900, 920, 9, ONE, (3, 1, 1)))
    table = nsys_tables.summarise(export(tmp_path / "a.sqlite", kernels, [], []))
    names = ["launches", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share"]
    several, alone = table[names].to_dict("records")
    assert several == pytest.approx({"launches": 4, "total_ns": 20, "mean_ns": 5, "median_ns": 4, "min_ns": 2,
                                     "max_ns": 10, "std_ns": 3, "share": 0.5})  # fmt: skip
    assert alone == {"launches": 1, "total_ns": 20, "mean_ns": 20, "median_ns": 20, "min_ns": 20, "max_ns": 20,
                     "std_ns": 0, "share": 0.5}  # fmt: skip


def test_launches_are_read_with_where_they_were_placed_and_when_they_began(tmp_path: Path) -> None:
    """A kernel of a graph's node with a call, one without, and a graph that was traced whole, of number 6."""
    kernels = [(*kernel(20, 25, 1, ONE), 77), kernel(40, 48, 2, ONE)]
    path = export(tmp_path / "a.sqlite", kernels, [(10, 1, ONE + 1), (50, 8, ONE + 1)], [], [(60, 90, 8, ONE, 6)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId DEFAULT 7")
        database.commit()
    with nsys_trace.open_trace(path) as opened:
        found = opened.launches
    known = found[["launched", "process", "ns", "graph", "thread"]].to_numpy().tolist()
    assert known == [[10, ONE, 5, -1, ONE + 1], [-1 - 40, ONE, 8, -1, 0], [50, ONE, 30, 6, ONE + 1]]
    placed = found[["start", "stream", "correlation", "node"]].to_numpy().tolist()
    assert placed == [[20, 7, 1, 77], [40, 7, 2, 0], [60, 7, 8, 0]]


def test_a_graph_is_launched_by_the_first_of_its_calls_and_without_one_before_the_trace(tmp_path: Path) -> None:
    graphs = [(60, 90, 8, ONE, 6), (100, 130, 9, ONE, 6), (140, 150, 8, TWO, 6)]
    calls = [(52, 8, ONE + 1), (50, 8, ONE + 1), (45, 8, TWO + 1)]
    path = export(tmp_path / "a.sqlite", [], calls, [], graphs)
    with nsys_trace.open_trace(path) as opened:
        found = opened.launches
    assert found["launched"].tolist() == [50, -1 - 100, 45]


# Steps of a whole run, and its window from 200 on.
STEPS = [(100, 190, ONE + 1, "step"), (200, 290, ONE + 1, "step"), (300, 390, ONE + 1, "step")]


@pytest.mark.parametrize(
    ("begins", "ends", "lost", "counted"),
    [
        # A step that begins with the window is of it; one that the trace ends with was cut off.
        (200, 391, None, 2), (201, 391, None, 1), (200, 390, None, 1), (200, None, None, 2),
        # What did not run was launched in the last step; behind it; as it ended.
        (200, 1000, 380, 1), (200, 1000, 395, 2), (200, 1000, 390, 2), (200, 1000, 389, 1),
        # One without a kernel before another that ran, as where it was captured into a graph, cuts nothing off.
        (200, 1000, 210, 2),
    ],
)  # fmt: skip
def test_which_steps_of_a_whole_run_count(
    tmp_path: Path, begins: int, ends: int | None, lost: int | None, counted: int
) -> None:
    ranges = [*STEPS, (begins, 900, ONE + 1, "window")]
    calls = [(250, 1, ONE + 1), *([(lost, 2, ONE + 1)] if lost else [])]
    path = export(tmp_path / "a.sqlite", [kernel(260, 270, 1, ONE)], calls, ranges, ends=ends)
    if ends is None:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE ANALYSIS_DETAILS (duration)")
            database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (NULL)")
            database.commit()
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (counted, True)


def test_of_a_process_nothing_of_which_ran_all_launches_are_lost(tmp_path: Path) -> None:
    """Another's kernels say nothing of it; without the table of calls nothing is known to be lost."""
    other = [(start, end, TWO + 1, name) for start, end, _, name in STEPS]
    calls = [(250, 1, ONE + 1), (250, 1, TWO + 1)]
    path = export(tmp_path / "a.sqlite", [kernel(260, 270, 1, ONE)], calls, [*STEPS, *other])
    with nsys_trace.open_trace(path) as opened:
        steps = nsys_trace.read_window_steps(opened, whole_run=True)
    assert steps.groupby("process").size().to_dict() == {ONE: 3, TWO: 1}
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (3, False)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
        database.commit()
    with nsys_trace.open_trace(path) as opened:
        steps = nsys_trace.read_window_steps(opened, whole_run=True)
    assert steps.groupby("process").size().to_dict() == {ONE: 3, TWO: 3}


def test_a_range_may_end_as_it_begins(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [], [], [(100, 100, ONE + 1, "step"), (100, 99, ONE + 1, "step")])
    assert nsys_trace.count_traced_steps(path, whole_run=False) == (1, False)
    assert nsys_trace.explain_no_steps(path, whole_run=False) is None


def test_an_error_is_told_in_one_line_of_200_letters() -> None:
    assert nsys_trace._line(ValueError("a\n  b")) == "a b" and len(nsys_trace._line(ValueError("x" * 201))) == 200


@pytest.mark.parametrize(("off", "fits"), [(0.9e-6, True), (1.2e-6, False)])
def test_shares_fit_to_a_millionth(off: float, fits: bool) -> None:
    table = pd.DataFrame({"share": [0.75 + off, 0.25 - off], "total_ns": [30, 10]})
    assert (nsys_tables._whole(table) is None) == fits
    assert (nsys_tables._whole(table.assign(share=[0.75 + off / 2, 0.25 + off / 2])) is None) == fits
    # A row outside of all steps has none.
    several = pd.DataFrame({"share": [0.75, 0.25, None], "total_ns": [30, 10, 99]})
    assert nsys_tables._whole(several) is nsys_tables._whole(several.assign(share=None)) is None
    assert "rows are missing" in str(nsys_tables._whole(several.assign(share=[0.25, 0.75, None])))


def test_kernels_agree_with_nsys_one_by_one(summary: pd.DataFrame) -> None:
    theirs = pd.read_csv(DATA / "nsys/cuda_gpu_kern_sum.csv").set_index("Name")
    ours = summary.groupby("kernel")[["launches", "total_ns"]].sum()
    assert (2 * ours["launches"]).to_dict() == theirs["Instances"].to_dict()  # Of twenty steps; ours of ten.
    ratio = 2 * ours["total_ns"] / theirs["Total Time (ns)"].reindex(ours.index)
    assert ratio.between(0.9, 1.1).all()


@pytest.mark.parametrize("folder", ["with space", "a#b", "a?b", "a%20b"])
def test_any_folder_will_do(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    path = export(tmp_path / folder / "a.sqlite", [kernel(100, 110, 7, ONE)], [(50, 7, ONE)], [])
    assert nsys_tables.summarise(path)["launches"].sum() == 1
