"""What nsys' tables say of small traces whose answers were worked out by hand, at the edges of each rule."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.nsys import export_columns, launches_by_step, median_step, step_sequence, timeline
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace
from tests.unit.test_nsys_steps import COPY, LAUNCH, OTHER, SYNCHRONIZE, trace
from tests.unit.test_nsys_tables import ONE, TWO, export, kernel

STREAM, TO_DEVICE = 7, 1


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
    assert nsys_launches.step_positions(launches, steps).tolist() == [step, -1]
    assert nsys_launches.is_outside_steps(launches, steps).tolist() == [step < 0, True]
    moment = launched if launched >= 0 else -1 - launched
    assert nsys_launches.launch_times(launches).tolist() == [moment, moment]


def test_a_launch_is_in_the_range_in_which_it_was_made() -> None:
    """A kernel without a call has none, although it began in one."""
    parts = pd.DataFrame({"name": ["data", "graph"], "process": ONE, "start": [100, 200], "end": [150, 300]})
    launches = pd.DataFrame({"process": ONE, "launched": [100, 149, 150, 200, 299, 300, -1 - 120]})
    names = np.array(["", *nsys_tables.LAUNCHING])[nsys_launches.find_ranges(launches, parts)]
    assert names.tolist() == ["data", "data", "", "graph", "graph", "", ""]


def test_of_several_processes_that_with_most_steps_has_the_sequence(tmp_path: Path) -> None:
    ranges = [(0, 100, ONE + 1, "step"), (0, 100, TWO + 1, "step"), (200, 300, TWO + 1, "step")]
    kernels = [
        kernel(20, 25, 1, ONE, (9, 1, 1)),
        kernel(20, 26, 1, TWO, (5, 1, 1)),
        kernel(220, 228, 2, TWO, (5, 1, 1)),
    ]
    calls = [(10, 1, ONE + 1), (10, 1, TWO + 1), (210, 2, TWO + 1)]
    table = step_sequence.read_step_launches(export(tmp_path / "a.sqlite", kernels, calls, ranges), 1)
    assert table[["grid_x", "steps", "ns", "min_ns", "max_ns"]].to_numpy().tolist() == [[5, 2, 7, 6, 8]]


@pytest.mark.parametrize(("off", "closes"), [(0, True), (2, True), (-2, True), (2.5, False), (-2.5, False)])
def test_idle_and_busy_time_close_to_a_ns_and_a_millionth(off: float, closes: bool) -> None:
    """Of a step of 1 ms, 2 ns may be lost by rounding: one, and a millionth."""
    row = pd.DataFrame({"busy_ns": [400_000.0, 400_000.0], "idle_ns": [600_000.0, 600_000.0 + off], "wall_ns": 1e6})
    said = nsys_steps._adds_up(row)
    assert said is None if closes else said == "row 2: busy_ns and idle_ns are not wall_ns"


def lengths(*ns: int) -> pd.DataFrame:
    """Steps of these lengths, one after another."""
    ends = np.cumsum(ns)
    return pd.DataFrame({"start": ends - np.array(ns), "end": ends})


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ((90,), 0),
        ((10, 90), 1),
        # The first does not count; of four the second shortest is the median, of five the third.
        ((20, 10, 30, 20, 40), 3),
        ((30, 50, 10, 30, 20, 40), 3),
        ((10, 70, 50, 60), 3),
    ],
)
def test_the_typical_step_is_that_of_the_median_length(steps: tuple[int, ...], place: int) -> None:
    assert median_step._median(lengths(*steps)) == place


def with_streams(folder: Path, *given: list) -> Path:
    """A small trace of test_nsys_steps whose kernels and copies are on stream 7."""
    trace(folder, *given)
    with closing(sqlite3.connect(folder / "t.sqlite")) as database:
        for kind in ("KERNEL", "MEMCPY"):
            database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} ADD COLUMN streamId DEFAULT {STREAM}")
        database.commit()
    return folder / "t.sqlite"


def add_process(path: Path, process: int) -> None:
    """The same events once more, of another process, 7 ns later."""
    with closing(sqlite3.connect(path)) as database:
        owners = {"NVTX_EVENTS": "globalTid", "CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid",
                  "CUPTI_ACTIVITY_KIND_KERNEL": "globalPid", "CUPTI_ACTIVITY_KIND_MEMCPY": "globalPid"}  # fmt: skip
        for table, owner in owners.items():
            names = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            moved = {owner: f"{owner} + {process}", "start": "start + 7", "end": "end + 7"}
            taken = ", ".join(moved.get(name, name) for name in names)
            database.execute(f"INSERT INTO {table} SELECT {taken} FROM {table}")
        database.commit()


RANGES = [("step", 0, 100), ("step", 100, 200), ("data", 110, 120), ("backward", 130, 180)]
CALLS = [(LAUNCH, 20, 25, 1), (LAUNCH, 130, 136, 2), (OTHER, 131, 133, 4), (COPY, 140, 145, 3)]


def test_a_typical_step_by_hand_and_nothing_of_other_processes(tmp_path: Path) -> None:
    """Times from the step's start, or from the end of what the GPU was still at: it was busy until 105."""
    path = with_streams(tmp_path, RANGES, CALLS, [(30, 105, 1), (150, 170, 2)], [(172, 190, 3, TO_DEVICE)])
    add_process(path, TWO - ONE)
    found = median_step.read_typical_step(path)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    named = {
        kind: [[start, ns, found["names"][name]] for start, ns, name in found[kind]] for kind in ("ranges", "calls")
    }
    assert {key: found[key] for key in ("step", "steps", "ns")} == {"step": 2, "steps": 2, "ns": 100}
    assert named["ranges"] == [[0, 100, "step"], [10, 10, "data"], [30, 50, "backward"]]
    assert named["calls"] == [[30, 6, "cudaLaunchKernel"], [31, 2, "cudaGetDevice"], [40, 5, "cudaMemcpyAsync"]]
    (stream,) = found["streams"].values()
    assert [[start, ns, found["names"][name]] for start, ns, name in stream] == [
        [50, 20, "k"], [72, 18, "copy host to device"]]  # fmt: skip
    # From 105 on idle until 150: input to 120, then nothing, the launch from 130 to 136, and its latency.
    by_cause = {cause: [gap[:2] for gap in found["gaps"] if gap[2] == at] for at, cause in enumerate(nsys_steps.CAUSES)}
    assert by_cause == {
        "input": [[10, 10]], "synchronisation": [], "latency": [[36, 14], [70, 2]], "launch": [[30, 6]],
        "host": [[5, 5], [20, 10], [90, 10]],
    }  # fmt: skip


@pytest.mark.parametrize(("counts", "merged"), [([1, 1], False), ([1, 2], True)])
def test_how_many_were_merged_is_told_where_some_were(counts: list[int], merged: bool) -> None:
    table = pd.DataFrame({"start": [10, 20], "end": [15, 29], "name": ["a", "b"], "merged": counts})
    rows = median_step._rows(table, 10, {})
    assert rows == ([[0, 5, 0, 1], [10, 9, 1, 2]] if merged else [[0, 5, 0], [10, 9, 1]])


def test_the_queue_by_hand() -> None:
    """Three launches: the first meets an idle GPU, the second is made while that runs, the third before both began."""
    launches = pd.DataFrame(
        {"start_call": [10, 40, 45, 200], "end_call": [14, 46, 47, 212], "start": [20, 80, 120, 230],
         "end": [80, 120, 130, 240]}
    )  # fmt: skip
    # As each is made, so many before it have not begun: 0, 0, 1, 0. Only the first and last found the GPU idle.
    assert nsys_steps._queue(launches) == {"launch_call_ns": 5.0, "launch_latency_ns": 20.0, "queue_depth": 0.0}
    alone = launches.head(3)
    assert nsys_steps._queue(alone) == {"launch_call_ns": 4.0, "launch_latency_ns": 10.0, "queue_depth": 0.0}


@pytest.mark.parametrize(("call", "host"), [(100_000, 200_000), (100_001, 100_000)])
def test_a_launch_that_waits_for_room_is_no_work_of_the_cpu(tmp_path: Path, call: int, host: int) -> None:
    """Longer than 100 us only: of the step of 200 us the GPU is busy from 10 ns on, for as long as the call lasts."""
    calls = [(LAUNCH, 0, 5, 1), (LAUNCH, 9, 9 + call, 2)]
    row = trace(tmp_path, [("step", 0, 200_000)], calls, [(10, 200_000, 1), (200_000, 200_100, 2)])
    # Its first ns, before the GPU began, is the CPU's own.
    assert row["host_ns"] == host
    assert (row["wall_ns"], row["launches"]) == (200_100, 2)


def test_which_copies_cross_and_which_calls_wait(tmp_path: Path) -> None:
    """Each kind of copy for 10 ns: those between host and device, and arrays, cross."""
    kinds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    copies = [(20 * kind, 20 * kind + 10, kind, kind) for kind in kinds]
    row = trace(tmp_path, [("step", 0, 300)], [(SYNCHRONIZE, 5, 295, 99)], [], copies)
    assert (row["copy_ns"], row["transfer_ns"], row["kernel_ns"]) == (100, 40, 0)
    with nsys_trace.open_export(tmp_path / "t.sqlite") as (database, tables):
        waits = timeline.calls(database, tables)
    assert waits[["launches", "copies", "waits"]].to_numpy().tolist() == [[False, False, True]]


def test_launches_by_step_by_hand(tmp_path: Path) -> None:
    ranges = [(100, 200, ONE + 1, "step"), (110, 150, ONE + 1, "loss"), (200, 300, ONE + 1, "step")]
    kernels = [
        kernel(160, 165, 2, ONE, (2, 1, 1)),
        kernel(120, 130, 1, ONE),
        kernel(310, 340, 3, ONE),
        kernel(90, 95, 9, ONE),
    ]
    calls = [(115, 1, ONE + 1), (155, 2, ONE + 1), (290, 3, ONE + 1), (80, 9, ONE + 1)]
    # A graph that was traced whole, of number 0, is no kernel.
    path = export(tmp_path / "a.sqlite", kernels, [*calls, (295, 8, ONE + 1)], ranges, [(350, 360, 8, ONE, 0)])
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId DEFAULT {STREAM}")
        database.commit()
    table = launches_by_step.read_step_launches(path)
    assert table[
        ["step", "start_ns", "ns", "range", "stream", "grid_x", "kernel", "mangled", "function"]
    ].to_numpy().tolist() == [
        [0, 120, 10, "loss", STREAM, 1, "k()", "_Z1kv", "k"],
        [0, 160, 5, "", STREAM, 2, "k()", "_Z1kv", "k"],
        [1, 310, 30, "", STREAM, 1, "k()", "_Z1kv", "k"],
    ]
    assert table["process"].tolist() == [ONE] * 3


def test_statistics_of_launches_by_hand(tmp_path: Path) -> None:
    """Times 2, 4, 4, 10 of one configuration, and 20 of another: the deviation is that of the population."""
    kernels = [kernel(100 * place, 100 * place + ns, place, ONE) for place, ns in enumerate((4, 10, 2, 4), 1)]
    kernels.append(kernel(900, 920, 9, ONE, (3, 1, 1)))
    table = nsys_tables.summarise(export(tmp_path / "a.sqlite", kernels, [], []))
    several, alone = table[nsys_tables.STATISTICS].to_dict("records")
    assert several == pytest.approx({"launches": 4, "total_ns": 20, "mean_ns": 5, "median_ns": 4, "min_ns": 2,
                                     "max_ns": 10, "std_ns": 3, "share": 0.5})  # fmt: skip
    assert alone == {"launches": 1, "total_ns": 20, "mean_ns": 20, "median_ns": 20, "min_ns": 20, "max_ns": 20,
                     "std_ns": 0, "share": 0.5}  # fmt: skip


def test_a_table_of_which_shares_do_not_fit_is_refused() -> None:
    table = pd.DataFrame({"share": [0.75, 0.25, None], "total_ns": [30, 10, 99]})
    assert nsys_tables._whole(table) is None
    assert nsys_tables._whole(table.assign(share=[0.75 + 4e-7, 0.25 + 4e-7, None])) is None
    for wrong in ([0.75 + 2e-6, 0.25 - 2e-6, None], [0.75, 0.2499, None], [0.25, 0.75, None]):
        assert "rows are missing" in str(nsys_tables._whole(table.assign(share=wrong)))
    assert nsys_tables._whole(table.assign(share=None)) is None


def test_declared_columns_say_what_stands_for_nothing(tmp_path: Path) -> None:
    """A call without an ID is no kernel's without one."""
    assert (
        export_columns.NO_CALL != export_columns.NO_ACTIVITY
        and export_columns.NO_CALL < 0
        and export_columns.NO_ACTIVITY < 0
    )
    path = export(tmp_path / "a.sqlite", [kernel(0, 5, 1, ONE)], [], [])
    with nsys_trace.open_export(path) as (database, _):
        read = export_columns.sql_for_numbers(
            database, "CUPTI_ACTIVITY_KIND_KERNEL", ["start", "correlationId", "gridX"], "k"
        )
        assert read == {
            "start": "k.start",
            "correlationId": "coalesce(k.correlationId, -1)",
            "gridX": "coalesce(k.gridX, 0)",
        }
        absent = export_columns.sql_for_numbers(
            database, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", ["syncType", "eventId"]
        )
        assert absent == {"syncType": "0", "eventId": "0"}


@pytest.mark.parametrize("begin", [0, 10**9])
def test_launches_and_gaps_are_merged_by_slots_of_the_steps_time_wherever_it_begins(begin: int) -> None:
    """Of 10,000 rows, one every 10 ns, four share each of 2,500 slots; of as many gaps eight each of 1,250."""
    starts = begin + np.arange(0, 100_000, 10)
    table = pd.DataFrame({"start": starts, "end": starts + 10, "name": "k"})
    found = median_step._fewer(table)
    assert found["merged"].tolist() == [4] * (median_step.MOST // 2)
    assert (found["end"] - found["start"]).tolist() == [40] * len(found) and found["start"].iloc[1] == begin + 40
    gaps = median_step._gaps([np.column_stack([starts, starts + 3])], begin, begin + 100_000)
    assert gaps == [[80 * slot, 24, 0] for slot in range(median_step.MOST // 4)]


def test_what_columns_may_hold_fits_what_reads_them() -> None:
    """All are read as 64 bits; a sum or difference of two times, and a packed name, have to fit, too."""
    declared = [column for table in export_columns.READ.values() for column in table.values()]
    assert all(-(2**63) < column.least <= column.instead <= column.most < 2**63 or column.null for column in declared)
    assert (
        max(column.most for column in declared) == 2**63 - 1
        and export_columns.Column(2**62, -(2**62)) == export_columns.TIME
    )
    kernels = export_columns.READ["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert {kernels[name].most for name in ("mangledName", "demangledName", "shortName")} == {2**31 - 1}
    assert {kernels[name].null for name in ("correlationId", "globalPid", "graphNodeId", "mangledName")} == {True}
    assert not {kernels[name].null for name in ("start", "end", "demangledName", "shortName", "streamId")} - {False}
