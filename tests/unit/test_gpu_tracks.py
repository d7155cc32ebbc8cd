"""GPU memory over time, and tracks below the typical step: what a few known events of a trace must give."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tables.track_suppliers import SUPPLIERS
from profzoo.tools.nsys import gpu_memory, median_step, step_spans, tracks
from profzoo.tools.nsys.trace import open_export
from tests import sampled_traces
from tests.sampled_traces import DEVICE, PINNED

MB = 1 << 20


@pytest.fixture
def trace(recording: Callable, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """A copy of the recorded training, with the spans of its steps."""
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    with open_export(path) as (database, tables):
        return path, step_spans.read_step_spans(database, tables)


def test_memory_in_use_is_what_was_taken_and_not_freed(trace: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    path, spans = trace
    third, process = int(spans["start"][3]), int(spans["process"][0])
    events = [
        (third + 100, 1000, 64 * MB, DEVICE, False),
        (third + 200, 2000, 32 * MB, DEVICE, False),
        (third + 250, 9000, 4 * MB, PINNED, False),
        (third + 300, 1000, 64 * MB, DEVICE, True),
        # Taken before the trace, and freed in it.
        (third + 400, 7000, 16 * MB, DEVICE, True),
        # The same address again, and an event outside all steps.
        (int(spans["end"].max()) + 5, 1000, 8 * MB, DEVICE, False),
    ]
    sampled_traces.add_memory(path, process, events)
    table, said = gpu_memory.tabulate_memory(path)
    assert len(said) == 1 and "set nsys.capture to run" in said[0]
    device = table[table["kind"] == "device"]
    assert list(device["in_use_bytes"] // MB) == [16, 80, 112, 48, 32, 40]
    assert list(device["peak_bytes"] // MB) == [16, 80, 112, 112, 112, 112]
    assert list(device["operation"]) == ["before", "allocation", "allocation", "free", "free", "allocation"]
    assert list(device["step"].astype("object").where(device["step"].notna(), None)) == [3, 3, 3, 3, 3, None]
    assert list(table.loc[table["kind"] == "pinned", "in_use_bytes"]) == [4 * MB]
    assert device["t_ns"].iloc[1] == third + 100 - spans["start"][0] and set(table["process"]) == {
        process >> 24 & 0xFFFFFF
    }
    write_csv(table, str(tmp_path / "m.csv"))
    read = csv_tables.read(tmp_path / "m.csv", gpu_memory.TABLE)
    assert list(read["in_use_bytes"]) == list(table["in_use_bytes"])
    assert gpu_memory.tabulate_memory(path, whole_run=True)[1] == []


def test_memory_that_nsys_tells_from_before_the_trace_is_one_row(trace: tuple[Path, pd.DataFrame]) -> None:
    """nsys 2025.3 begins with all allocations and frees so far, in their order, at the time 0."""
    path, spans = trace
    third, process = int(spans["start"][3]), int(spans["process"][0])
    events = [
        (0, 1000, 64 * MB, DEVICE, False),
        (0, 2000, 32 * MB, DEVICE, False),
        (0, 2000, 32 * MB, DEVICE, True),
        (0, 2000, 16 * MB, DEVICE, False),
        (0, 9000, 4 * MB, PINNED, False),
        (third + 100, 2000, 16 * MB, DEVICE, True),
        (third + 200, 2000, 8 * MB, DEVICE, False),
        (third + 300, 2000, 8 * MB, DEVICE, True),
    ]
    sampled_traces.add_memory(path, process, events)
    table, said = gpu_memory.tabulate_memory(path)
    assert said == [] and gpu_memory.TABLE.holds(table) is None
    device = table[table["kind"] == "device"]
    assert list(device["operation"]) == ["before", "free", "allocation", "free"]
    assert list(device["in_use_bytes"] // MB) == [80, 64, 72, 64]
    assert list(device["allocated_before"]) == [True, True, False, False]
    pinned = table[table["kind"] == "pinned"]
    assert pinned[["operation", "bytes", "allocated_before"]].values.tolist() == [["before", 4 * MB, True]]
    assert set(table["t_ns"][table["operation"] == "before"]) == {-int(spans["start"][0])}


def test_a_table_of_memory_that_does_not_add_up_is_refused(trace: tuple[Path, pd.DataFrame]) -> None:
    path, spans = trace
    start, process = int(spans["start"][1]), int(spans["process"][0])
    sampled_traces.add_memory(path, process, [(start + at, at, at * MB, DEVICE, False) for at in (1, 2, 3)])
    table, _ = gpu_memory.tabulate_memory(path)
    assert gpu_memory.TABLE.holds(table) is None
    assert "not what was taken" in str(gpu_memory.TABLE.holds(table.drop(index=1)))


def test_why_there_is_no_memory_is_said_in_a_line(trace: tuple[Path, pd.DataFrame]) -> None:
    path, _ = trace
    assert gpu_memory.tabulate_memory(path)[1] == [gpu_memory.NOT_COLLECTED]
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:COLLECT_GPU_MEMORY_USAGE', 'true')")
        database.commit()
    # It was collected, and nothing was taken or freed.
    assert gpu_memory.tabulate_memory(path)[1] == [gpu_memory.NOTHING]
    sampled_traces.add_memory(path, 0, [])
    assert gpu_memory.tabulate_memory(path)[1] == [gpu_memory.NOTHING]
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUDA_GPU_MEMORY_USAGE_EVENTS DROP COLUMN address")
        database.commit()
    table, (line,) = gpu_memory.tabulate_memory(path)
    assert table.empty and "no column address in CUDA_GPU_MEMORY_USAGE_EVENTS" in line


def test_tracks_are_cut_to_the_step_and_say_what_was_not_collected(trace: tuple[Path, pd.DataFrame]) -> None:
    path, spans = trace
    process, begin, end = int(spans["process"][0]), int(spans["start"][4]), int(spans["start"][4]) + 1_000_000
    step = tracks.TypicalStep(process, begin, end)
    with open_export(path) as (database, tables):
        found, missing = tracks.collect_tracks(SUPPLIERS, database, tables, step)
    assert not {"SMs active", "memory: device"} & {*found["track"]} and len(missing) >= 2
    assert any("nsys.gpu_metrics" in line for line in missing)
    assert any("nsys.cuda_memory_usage" in line for line in missing)
    times = np.arange(begin - 250_000, end + 250_000, 100_000)
    sampled_traces.add_metrics(path, times, {"SM Active [Throughput %]": np.arange(len(times))})
    events = [
        (begin - 9, 1, MB, DEVICE, False), (begin + 600_000, 2, MB, DEVICE, False), (begin - 8, 3, 16, PINNED, False)
    ]  # fmt: skip
    sampled_traces.add_memory(path, process, events)
    with open_export(path) as (database, tables):
        found, missing = tracks.collect_tracks(SUPPLIERS, database, tables, step)
    active, memory = found[found["track"] == "SMs active"], found[found["track"] == "memory: device"]
    assert not any("nsys.gpu_metrics" in line or "cuda_memory_usage" in line for line in missing)
    # The first sample had begun 50 us before the step, and the last one ends after it.
    assert list(active["start_ns"]) == [0, *range(50_000, 1_000_000, 100_000)]
    assert list(active["end_ns"]) == [*range(50_000, 1_000_000, 100_000), 1_000_000]
    assert list(active["value"]) == list(range(2, 13)) and set(active["unit"]) == {"%"}
    # A few bytes of pinned memory are no track of their own.
    assert {name for name in found["track"] if name.startswith("memory")} == {"memory: device"}
    assert memory[["start_ns", "end_ns", "value"]].to_numpy().tolist() == [
        [0, 600_000, MB],
        [600_000, 1_000_000, 2 * MB],
    ]


def test_rows_of_streams_are_drawn_once(trace: tuple[Path, pd.DataFrame]) -> None:
    def supply(*_: object) -> pd.DataFrame:
        return pd.concat([tracks.make_spans(name, [(0, 9, 1.0)]) for name in ("stream 7", "stream 99")])

    timeline, spans = median_step.read_step_with_tracks(trace[0], suppliers=[supply]) or ({}, None)
    assert list(timeline["streams"]) == ["7"] and [track["name"] for track in timeline["tracks"]] == ["stream 99"]
    assert list(spans["track"]) == ["stream 7", "stream 99"]
