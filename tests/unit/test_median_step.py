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

from profzoo.range_names import PARTS
from profzoo.tables import step_timeline
from profzoo.tables.stream_tracks import supply_stream_tracks
from profzoo.tools.nsys import intervals, median_step
from profzoo.tools.nsys import steps as nsys_steps
from tests.unit.test_nsys_steps import COPY, LAUNCH, trace


def test_the_recorded_step_is_busy_or_idle_by_a_cause(recording: Callable) -> None:
    path = recording("nsys/train.sqlite")
    found = median_step.read_typical_step(path)
    assert found and found["steps"] == 10 and 1 < found["step"] <= 10
    (stream,) = found["streams"].values()
    busy = intervals.union(np.array([[at, at + ns] for at, ns, *_ in stream]))
    idle = sum(ns for _, ns, _ in found["gaps"])
    assert found["ns"] == pytest.approx(intervals.total(busy) + idle, rel=0.01)
    mean = nsys_steps.where_time_goes(path).iloc[0]
    assert found["ns"] == pytest.approx(mean["wall_ns"], rel=0.2) and len(stream) == pytest.approx(
        mean["launches"], rel=0.15
    )
    names = found["names"]
    assert [names[row[2]] for row in found["ranges"]] == ["step", *(part for part in PARTS if part in names)]
    assert {names[row[2]] for row in found["calls"]} >= {"cudaLaunchKernel", "cudaMemcpyAsync"}
    assert len(json.dumps(found)) < 300_000


def test_causes_are_those_of_the_table_of_steps(tmp_path: Path) -> None:
    ranges = [("step", 0, 100), ("step", 200, 300), ("data", 200, 210)]
    calls = [(LAUNCH, 210, 215, 1), (COPY, 255, 260, 2)]
    trace(tmp_path, ranges, calls, [(225, 255, 1)], [(270, 300, 2, 1)])
    # The small trace has no streams.
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database:
        for kind in ("KERNEL", "MEMCPY"):
            database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} ADD COLUMN streamId DEFAULT 7")
        database.commit()
    found = median_step.read_typical_step(tmp_path / "t.sqlite")
    assert found and (found["step"], found["ns"]) == (2, 100)
    by_cause = {
        cause: [gap[:2] for gap in found["gaps"] if gap[2] == code] for code, cause in enumerate(nsys_steps.CAUSES)
    }
    assert by_cause == {"input": [[0, 10]], "synchronisation": [], "latency": [[15, 10], [60, 10]],
                        "launch": [[10, 5], [55, 5]], "host": []}  # fmt: skip
    assert [[row[0], row[1], found["names"][row[2]]] for row in found["streams"]["7"]] == [
        [25, 30, "k"], [70, 30, "copy host to device"]]  # fmt: skip


def test_streams_of_two_gpus_have_a_row_each(recording: Callable, tmp_path: Path) -> None:
    """CUDA numbers the first stream of every GPU alike."""
    shutil.copyfile(recording("nsys/train.sqlite"), path := tmp_path / "t.sqlite")
    (alone,) = median_step.read_typical_step(path)["streams"].values()
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE rowid % 4 = 0")
        database.commit()
    step, spans = median_step.read_step_with_tracks(path, suppliers=[supply_stream_tracks])
    assert list(step["streams"]) == ["7 of GPU 0", "7 of GPU 1"] and step["tracks"] == []
    assert {*spans["track"]} == {"GPU 0 stream 7", "GPU 1 stream 7"}
    assert sorted(row[:2] for rows in step["streams"].values() for row in rows) == sorted(row[:2] for row in alone)


def test_many_gaps_are_added_up_by_their_cause() -> None:
    """As between the 11,000 launches of a training step of Pixel-RNN: 675 kB without."""
    random = np.random.default_rng(7)
    edges = np.sort(random.choice(200_000_000, 120_000, replace=False)).reshape(-1, 2) + 5_000
    causes = [edges[code::4] for code in range(4)] + [np.empty((0, 2))]
    found = np.array(median_step._gaps(causes, 5_000, 200_005_000))
    assert len(json.dumps(found.tolist())) < 120_000 and found[:, 0].min() >= 0
    assert (found[:, 0] + found[:, 1]).max() <= 200_000_000
    for code, gaps in enumerate(causes):
        assert found[found[:, 2] == code, 1].sum() == np.diff(gaps).sum()
    # Where there are few, each is told.
    assert median_step._gaps([np.array([[7, 9]]), np.array([[9, 12]])], 5, 20) == [[2, 2, 0], [4, 3, 1]]


def test_many_launches_are_merged_into_few() -> None:
    table = pd.DataFrame({"start": np.arange(0, 1_000_000, 10), "name": "k"})
    table["end"] = table["start"] + 5
    table.loc[table.index % 100 == 0, "name"] = "other"
    found = median_step._fewer(table)
    assert len(found) <= median_step.MOST and found["merged"].sum() == len(table)
    assert found["start"].is_monotonic_increasing and found["end"].max() == table["end"].max()
    assert median_step._fewer(table.head(10))["merged"].eq(1).all()


def test_a_trace_without_steps_leaves_an_empty_timeline(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.commit()
    (tmp_path / "report.json").write_text('{"capture": "window"}')
    step_timeline.main(
        str(tmp_path / "t.sqlite"),
        str(tmp_path / "report.json"),
        str(tmp_path / "timeline.json"),
        str(tmp_path / "tracks.csv"),
    )
    assert json.loads((tmp_path / "timeline.json").read_text()) == {}
