"""What nsys' tables say where two things happen at the same ns, or one of them is missing: worked out by hand."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys import median_step, timeline
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace
from tests.unit.test_nsys_known import with_streams
from tests.unit.test_nsys_steps import COPY, LAUNCH, OTHER, PROCESS, SYNCHRONIZE, TO_HOST, WITHIN, trace
from tests.unit.test_nsys_tables import ONE, TWO, export, kernel


def launched(*rows: tuple[float, float, float, float]) -> pd.DataFrame:
    """Kernels by when their call began and ended, and when they did."""
    return pd.DataFrame(rows, columns=["start_call", "end_call", "start", "end"])


@pytest.mark.parametrize(
    ("rows", "latency", "depth"),
    [
        # The second is launched at the very ns at which the GPU has done the first: it waits 6, the first 10.
        ([(10, 12, 20, 40), (40, 42, 46, 50)], 8, 0),
        # One ns earlier the GPU is busy.
        ([(10, 12, 20, 40), (39, 42, 46, 50)], 10, 0),
        # The GPU runs the first until 100, though the second, beside it, has ended: the third meets a busy one.
        ([(10, 12, 20, 100), (25, 26, 30, 40), (50, 52, 130, 140)], 10, 0),
        # The third is made as the second begins, which has not begun before that: 0, 1 and 1 wait.
        ([(10, 12, 20, 60), (15, 16, 60, 70), (60, 62, 80, 90)], 10, 1),
        # Two calls at one ns: neither is made before the other.
        ([(10, 12, 20, 30), (10, 12, 24, 30)], 12, 0),
    ],
)
def test_a_launch_meets_an_idle_gpu_once_that_is_done(rows: list[tuple], latency: float, depth: float) -> None:
    for order in (rows, rows[::-1]):
        found = nsys_steps._queue(launched(*order))
        assert (found["launch_latency_ns"], found["queue_depth"]) == (latency, depth)


def test_without_a_call_nothing_is_known_of_the_queue() -> None:
    found = nsys_steps._queue(launched((np.nan, np.nan, 20, 30)))
    assert list(found) == nsys_steps.UNKNOWN and all(np.isnan(value) for value in found.values())
    # One that has none is in no median.
    both = nsys_steps._queue(launched((np.nan, np.nan, 5, 8), (10, 14, 20, 30)))
    assert both == {"launch_call_ns": 4, "launch_latency_ns": 10, "queue_depth": 0}


@pytest.mark.parametrize(
    ("calls", "counts", "begins", "ends"),
    [
        # Of steps from 100 to 200 and from 200 to 300: launched in the first, as the second begins, as it ends, behind it.
        ([199, 200, 300, 301], [200, 300], 250, 420),
        ([np.nan, 200, 300, 301], [200, 300], 200, 420),
    ],
)
def test_a_step_has_what_is_launched_from_its_first_ns_to_its_last(
    calls: list[float], counts: list[float], begins: int, ends: int
) -> None:
    """It begins once the GPU is done with what was launched before, and ends once it is done with its own."""
    steps = pd.DataFrame({"start": [100, 200], "end": [200, 300]})
    activity = pd.DataFrame({"start_call": calls, "start": [210, 260, 400, 500], "end": [250, 300, 420, 510]})
    activity.loc[activity["start_call"].isna(), ["start", "end"]] = [310, 320]
    found = nsys_steps.counted_steps(steps, activity)
    assert found.steps == 1 and found.on_cpu.tolist() == [[200, 300]]
    assert found.activity["start_call"].dropna().tolist() == counts and found.span.tolist() == [[begins, ends]]


def test_a_step_that_is_alone_begins_with_itself() -> None:
    """Whatever the GPU was still at, and it ends with the CPU's part where that is later."""
    steps = pd.DataFrame({"start": [100], "end": [200]})
    activity = pd.DataFrame({"start_call": [50, 120], "start": [90, 130], "end": [140, 150]})
    found = nsys_steps.counted_steps(steps, activity)
    assert (found.steps, found.span.tolist(), found.on_cpu.tolist()) == (1, [[100, 200]], [[100, 200]])
    assert found.activity["start_call"].tolist() == [120]


def spans(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@pytest.mark.parametrize(
    ("waited", "causes"),
    [
        # 40 ns idle with nothing queued: 10 of latency, 10 of a launch, 20 of the host; a wait takes equal parts.
        (0, {"synchronisation": 0, "latency": 10, "launch": 10, "host": 20}),
        (20, {"synchronisation": 20, "latency": 5, "launch": 5, "host": 10}),
        (40, {"synchronisation": 40, "latency": 0, "launch": 0, "host": 0}),
        # The CPU cannot be further ahead than that.
        (50, {"synchronisation": 40, "latency": 0, "launch": 0, "host": 0}),
    ],
)
def test_what_a_wait_costs_is_taken_from_what_was_idle_with_nothing_queued(waited: int, causes: dict) -> None:
    whole = spans((0, 40))
    covers = {"input": spans(), "synchronisation": spans(), "latency": spans((0, 10)), "launch": spans((5, 20)),
              "host": whole}  # fmt: skip
    assert nsys_steps._causes(whole, covers, whole, waited) == {"input": 0, **causes}
    # Where something was queued, it is the GPU's own.
    kept = nsys_steps._causes(whole, covers, spans(), waited)
    assert kept == {"input": 0, "synchronisation": 0, "latency": 10, "launch": 10, "host": 20}


def test_idleness_is_queued_where_something_was_launched_before_it_began() -> None:
    """Idle to 20, from 30 to 50, from 60 to 80, and from 90 on; launched at 5, 30, 55 and nothing."""
    gaps = spans((0, 20), (30, 50), (60, 80), (90, 100))
    activity = launched((5, 6, 20, 30), (30, 31, 50, 60), (55, 56, 80, 90))[["start_call", "start"]]
    # As the gap from 30 to 50 begins, its launch is being made: nothing was queued before.
    assert nsys_steps.unqueued_spans(gaps, activity).tolist() == [[0, 20], [30, 50], [90, 100]]
    # What was launched at 10 and comes last was queued all the time from then on.
    late = pd.concat([activity, pd.DataFrame({"start_call": [10.0], "start": [100]})])
    assert nsys_steps.unqueued_spans(gaps, late).tolist() == [[0, 20]]
    # Without a call it was launched when it began.
    alone = pd.DataFrame({"start_call": [np.nan], "start": [20]})
    assert nsys_steps.unqueued_spans(spans((0, 20)), alone).tolist() == [[0, 20]]


@pytest.mark.parametrize(
    ("call", "ends", "results", "at_all"),
    [
        # The GPU is busy from 10 to 300,000. Another call is no wait however long it takes, nor is a launch of 100 us.
        ((OTHER, 20, 200_020), 300_000, 0, 0),
        ((LAUNCH, 20, 100_020), 300_000, 0, 0),
        ((LAUNCH, 20, 100_021), 300_000, 0, 100_001),
        # A copy is one where it returns with what it copied, or behind; a launch is not.
        ((COPY, 20, 120), 120, 100, 100),
        ((COPY, 20, 120), 121, 0, 0),
        ((LAUNCH, 20, 120), 120, 0, 0),
        ((SYNCHRONIZE, 20, 120), 300_000, 100, 100),
        # Only in the window, and while the GPU is busy.
        ((SYNCHRONIZE, 0, 120), 300_000, 110, 110),
        ((SYNCHRONIZE, 20, 500_000), 300_000, 299_980, 299_980),
    ],
)
def test_in_which_calls_the_cpu_waits(call: tuple[int, int, int], ends: int, results: int, at_all: int) -> None:
    kind, begin, end = call
    calls = pd.DataFrame({"start": [begin], "end": [end], "correlation": [1], "launches": [kind in (LAUNCH, COPY)],
                          "copies": [kind == COPY], "waits": [kind == SYNCHRONIZE]})  # fmt: skip
    activity = pd.DataFrame({"start": [10, 15], "end": [300_000, ends], "correlation": [2, 1]})
    assert nsys_steps.waited_ns(calls, activity, spans((0, 400_000))) == (results, at_all)


def test_what_the_gpu_did_is_a_kernel_one_that_communicates_or_crosses(tmp_path: Path) -> None:
    """A kernel is no copy though the number of its name is a kind of copy's, and the other way round."""
    kernels, copies = [(10, 20, 1), (20, 30, 2, 2)], [(30, 40, 3, TO_HOST), (40, 50, 4, WITHIN)]
    trace(tmp_path, [("step", 0, 100)], [], kernels, copies, graphs=[(50, 60, 5)])
    with nsys_trace.open_export(tmp_path / "t.sqlite") as (database, tables):
        found = timeline.activity(database, tables)
    assert found[["start", "end", "correlation", "process", "kernel", "talking", "crossing"]].to_numpy().tolist() == [
        [10, 20, 1, PROCESS, True, False, False], [20, 30, 2, PROCESS, True, True, False],
        [30, 40, 3, PROCESS, False, False, True], [40, 50, 4, PROCESS, False, False, False],
        [50, 60, 5, PROCESS, True, False, False],
    ]  # fmt: skip


def test_of_calls_that_begin_together_the_longer_one_is_around_the_other() -> None:
    calls = pd.DataFrame({"correlation": [1, 1, 2], "start": [10, 10, 5], "end": [12, 20, 7]})
    found = timeline.outermost(calls).sort_values("correlation")
    assert found.to_numpy().tolist() == [[1, 10, 20], [2, 5, 7]]


def test_launches_are_read_with_where_they_were_placed_and_when_they_began(tmp_path: Path) -> None:
    """A kernel of a graph's node with a call, one without, and a graph that was traced whole, of number 6."""
    kernels = [(*kernel(20, 25, 1, ONE), 77), kernel(40, 48, 2, ONE)]
    path = export(tmp_path / "a.sqlite", kernels, [(10, 1, ONE + 1), (50, 8, ONE + 1)], [], [(60, 90, 8, ONE, 6)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId DEFAULT 7")
        database.commit()
    with nsys_trace.open_export(path) as (database, tables):
        placed = nsys_launches.read_launches(database, tables, placed=True)
        began = nsys_launches.read_launches(database, tables, began=True)
        plain = nsys_launches.read_launches(database, tables)
    known = ["launched", "process", "ns", "graph"]
    rows = [[10, ONE, 5, -1], [-1 - 40, ONE, 8, -1], [50, ONE, 30, 6]]
    for found, more in ((placed, ["start", "stream", "correlation"]), (began, ["start", "node"]), (plain, [])):
        assert found[known].to_numpy().tolist() == rows
        assert set(found.columns) == {*nsys_launches.PACKS, *known, *more}
    assert placed[["start", "stream", "correlation"]].to_numpy().tolist() == [[20, 7, 1], [40, 7, 2], [60, -1, 8]]
    assert began[["start", "node"]].to_numpy().tolist() == [[20, 77], [40, 0], [60, 0]]


def test_a_graph_is_launched_by_the_first_of_its_calls_and_without_one_before_the_trace(tmp_path: Path) -> None:
    graphs = [(60, 90, 8, ONE, 6), (100, 130, 9, ONE, 6), (140, 150, 8, TWO, 6)]
    calls = [(52, 8, ONE + 1), (50, 8, ONE + 1), (45, 8, TWO + 1)]
    path = export(tmp_path / "a.sqlite", [], calls, [], graphs)
    with nsys_trace.open_export(path) as (database, tables):
        found = nsys_launches.read_launches(database, tables)
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
    with nsys_trace.open_export(path) as (database, tables):
        steps = nsys_trace.read_window_steps(database, tables, whole_run=True)
    assert steps.groupby("process").size().to_dict() == {ONE: 3, TWO: 1}
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (3, False)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
        database.commit()
    with nsys_trace.open_export(path) as (database, tables):
        steps = nsys_trace.read_window_steps(database, tables, whole_run=True)
    assert steps.groupby("process").size().to_dict() == {ONE: 3, TWO: 3}


def test_a_range_may_end_as_it_begins(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [], [], [(100, 100, ONE + 1, "step"), (100, 99, ONE + 1, "step")])
    assert nsys_trace.count_traced_steps(path, whole_run=False) == (1, False)
    assert nsys_trace.explain_no_steps(path, whole_run=False) is None


def test_an_error_is_told_in_one_line_of_200_letters() -> None:
    assert nsys_trace._line(ValueError("a\n  b")) == "a b" and len(nsys_trace._line(ValueError("x" * 201))) == 200


@pytest.mark.parametrize(("off", "fits"), [(0.9e-6, True), (1.2e-6, False)])
def test_shares_fit_to_a_millionth(off: float, fits: bool) -> None:
    """Of two rows each, in opposite directions; and together."""
    table = pd.DataFrame({"share": [0.75 + off, 0.25 - off], "total_ns": [30, 10]})
    assert (nsys_tables._whole(table) is None) == fits
    assert (nsys_tables._whole(table.assign(share=[0.75 + off / 2, 0.25 + off / 2])) is None) == fits


def test_a_typical_step_that_is_alone_and_a_kernel_without_a_call(tmp_path: Path) -> None:
    """Busy from 30 to 40 and from 60 to 130, which is as long as the step takes; the latter kernel's call is not known."""
    path = with_streams(tmp_path, [("step", 0, 100)], [(LAUNCH, 20, 25, 1)], [(30, 40, 1), (60, 130, 2)])
    found = median_step.read_typical_step(path)
    assert found is not None
    assert (found["step"], found["steps"], found["ns"]) == (1, 1, 130)
    assert [row[:2] for row in found["streams"]["7"]] == [[30, 10], [60, 70]]
    by_cause = {cause: [gap[:2] for gap in found["gaps"] if gap[2] == at] for at, cause in enumerate(nsys_steps.CAUSES)}
    assert by_cause["latency"] == [[25, 5]] and by_cause["launch"] == [[20, 5]]
    assert by_cause["host"] == [[0, 20], [40, 20]]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (1, "copy host to device"), (2, "copy device to host"), (8, "copy on the device"), (10, "copy between devices"),
        (0, "copy"), (3, "copy"), (7, "copy"), (9, "copy"), (11, "copy"),
    ],
)  # fmt: skip
def test_copies_are_named_by_where_they_go(tmp_path: Path, kind: int, name: str) -> None:
    path = with_streams(tmp_path, [("step", 0, 100)], [(COPY, 20, 25, 1)], [], [(30, 40, 1, kind)])
    found = median_step.read_typical_step(path)
    assert found is not None and [found["names"][row[2]] for row in found["streams"]["7"]] == [name]


def test_what_begins_in_a_span_comes_before_what_it_holds() -> None:
    """From its first ns to before its end; of those that begin together the longer first, then by name."""
    table = pd.DataFrame(
        [(10, 12, "b"), (9, 30, "x"), (20, 25, "x"), (10, 12, "a"), (19, 40, "late"), (10, 20, "c")],
        columns=["start", "end", "name"],
    )
    found = median_step._within(table, 10, 20)
    assert found["name"].tolist() == ["c", "a", "b", "late"]


@pytest.mark.parametrize(("more", "rows"), [(0, median_step.MOST), (1, 2501)])
def test_rows_are_merged_where_there_are_more_than_5000(more: int, rows: int) -> None:
    """Of 5,001 rows of a ns each the last is in the last of 2,500 slots, two in each but that of the last."""
    assert median_step.MOST == 5000
    starts = np.arange(median_step.MOST + more)
    found = median_step._fewer(pd.DataFrame({"start": starts, "end": starts + 1, "name": "k"}))
    assert found["merged"].sum() == len(starts) and (len(found) == median_step.MOST) == (not more)
    gaps = median_step._gaps([np.column_stack([starts, starts + 1])], 0, len(starts))
    assert sum(ns for _, ns, _ in gaps) == len(starts) and (len(gaps) == median_step.MOST) == (not more)


def test_of_a_slot_the_longest_gives_the_name_and_of_such_the_first() -> None:
    """All 5,002 rows begin in the same ns: one slot, from the first start to the last end."""
    rows = [(100, 101, "short")] * 5000 + [(100, 150, "long"), (100, 150, "other")]
    found = median_step._fewer(pd.DataFrame(rows, columns=["start", "end", "name"]))
    assert found[["start", "end", "merged", "name"]].to_numpy().tolist() == [[100, 150, 5002, "long"]]


def test_calls_that_take_no_time_are_one_slot() -> None:
    table = pd.DataFrame({"start": [7] * 5001, "end": [7] * 5001, "name": "k"})
    assert median_step._fewer(table)[["start", "end", "merged"]].to_numpy().tolist() == [[7, 7, 5001]]
