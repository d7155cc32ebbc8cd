"""The timeline of a typical step: its time is busy or idle by a cause, and it stays small however much was launched."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.tables.step_timeline import supply_stream_tracks
from profzoo.tools.nsys.pictures import median_step
from profzoo.tools.nsys.steps import steps as nsys_steps
from tests.unit.test_nsys_steps import COPY, LAUNCH, OTHER, trace
from tests.unit.test_nsys_tables import ONE, TWO


def typical_step(path: Path) -> median_step.Timeline:
    found = median_step.read_step_with_tracks(path)
    assert found is not None
    return found[0]


def test_streams_of_two_gpus_have_a_row_each(recording: Callable, tmp_path: Path) -> None:
    shutil.copyfile(recording("nsys/train.sqlite"), path := tmp_path / "t.sqlite")
    (alone,) = typical_step(path)["streams"].values()
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE rowid % 4 = 0")
        database.commit()
    step, spans = median_step.read_step_with_tracks(path, suppliers=[supply_stream_tracks])
    assert list(step["streams"]) == ["7 of GPU 0", "7 of GPU 1"] and step["tracks"] == []
    assert {*spans["track"]} == {"GPU 0 stream 7", "GPU 1 stream 7"}
    assert sorted(row[:2] for rows in step["streams"].values() for row in rows) == sorted(row[:2] for row in alone)


STREAM, TO_DEVICE = 7, 1


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
    found = typical_step(path)
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
        "input": [[10, 10]], "turn": [], "synchronisation": [], "latency": [[36, 14], [70, 2]], "launch": [[30, 6]],
        "host": [[5, 5], [20, 10], [90, 10]],
    }  # fmt: skip


@pytest.mark.parametrize(("counts", "merged"), [([1, 1], False), ([1, 2], True)])
def test_how_many_were_merged_is_told_where_some_were(counts: list[int], merged: bool) -> None:
    table = pd.DataFrame({"start": [10, 20], "end": [15, 29], "name": ["a", "b"], "merged": counts})
    rows = median_step._rows(table, 10, {})
    assert rows == ([[0, 5, 0, 1], [10, 9, 1, 2]] if merged else [[0, 5, 0], [10, 9, 1]])


@pytest.mark.parametrize("begin", [0, 10**9])
def test_launches_and_gaps_are_merged_by_slots_of_the_steps_time_wherever_it_begins(begin: int) -> None:
    """Of 10,000 rows, one every 10 ns, four share each of 2,500 slots; of as many gaps eight each of 1,250."""
    starts = begin + np.arange(0, 100_000, 10)
    table = pd.DataFrame({"start": starts, "end": starts + 10, "name": "k"})
    found = median_step.merge_neighbours(table)
    assert found["merged"].tolist() == [4] * (median_step.MOST // 2)
    assert (found["end"] - found["start"]).tolist() == [40] * len(found) and found["start"].iloc[1] == begin + 40
    gaps = median_step._gaps([np.column_stack([starts, starts + 3])], begin, begin + 100_000)
    assert gaps == [[80 * slot, 24, 0] for slot in range(median_step.MOST // 4)]


def test_a_typical_step_that_is_alone_and_a_kernel_without_a_call(tmp_path: Path) -> None:
    """Busy from 30 to 40 and from 60 to 130, which is as long as the step takes; the latter kernel's call is not known."""
    path = with_streams(tmp_path, [("step", 0, 100)], [(LAUNCH, 20, 25, 1)], [(30, 40, 1), (60, 130, 2)])
    found = typical_step(path)
    assert (found["step"], found["steps"], found["ns"]) == (1, 1, 130)
    assert [row[:2] for row in found["streams"]["7"]] == [[30, 10], [60, 70]]
    by_cause = {cause: [gap[:2] for gap in found["gaps"] if gap[2] == at] for at, cause in enumerate(nsys_steps.CAUSES)}
    assert by_cause["latency"] == [[25, 5]] and by_cause["launch"] == [[20, 5]]
    assert by_cause["host"] == [[0, 20], [40, 20]]


def test_copies_are_named_by_where_they_go(tmp_path: Path) -> None:
    named = {1: "copy host to device", 2: "copy device to host", 8: "copy on the device", 10: "copy between devices"}
    kinds = [*named, 0, 3, 7, 9, 11]
    calls = [(COPY, 20 + place, 21 + place, place) for place, _ in enumerate(kinds, 1)]
    copies = [(30 + 5 * place, 34 + 5 * place, place, kind) for place, kind in enumerate(kinds, 1)]
    found = typical_step(with_streams(tmp_path, [("step", 0, 100)], calls, [], copies))
    assert [found["names"][row[2]] for row in found["streams"]["7"]] == [named.get(kind, "copy") for kind in kinds]


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
    found = median_step.merge_neighbours(pd.DataFrame({"start": starts, "end": starts + 1, "name": "k"}))
    assert found["merged"].sum() == len(starts) and (len(found) == median_step.MOST) == (not more)
    gaps = median_step._gaps([np.column_stack([starts, starts + 1])], 0, len(starts))
    assert sum(ns for _, ns, _ in gaps) == len(starts) and (len(gaps) == median_step.MOST) == (not more)


def test_of_a_slot_the_longest_gives_the_name_and_of_such_the_first() -> None:
    """All 5,002 rows begin in the same ns: one slot, from the first start to the last end."""
    rows = [(100, 101, "short")] * 5000 + [(100, 150, "long"), (100, 150, "other")]
    found = median_step.merge_neighbours(pd.DataFrame(rows, columns=["start", "end", "name"]))
    assert found[["start", "end", "merged", "name"]].to_numpy().tolist() == [[100, 150, 5002, "long"]]


def test_calls_that_take_no_time_are_one_slot() -> None:
    table = pd.DataFrame({"start": [7] * 5001, "end": [7] * 5001, "name": "k"})
    assert median_step.merge_neighbours(table)[["start", "end", "merged"]].to_numpy().tolist() == [[7, 7, 5001]]
