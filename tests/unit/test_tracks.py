"""Tracks below the typical step and GPU memory over time: what a few known events of a trace must give."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tables.step_timeline import SUPPLIERS
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.events.host_events import LACKING
from profzoo.tools.nsys.events.trace import open_trace
from profzoo.tools.nsys.over_time import gpu_memory
from profzoo.tools.nsys.pictures import median_step, tracks
from tests import sampled_traces
from tests.sampled_traces import DEVICE, PINNED
from tests.written_threads import AUTOGRAD, HOLDER, MAIN, PROCESS, SLEEPS, WORKER, Trace

LAUNCH = "cudaLaunchKernel_v7000"
TRACE = Trace(
    ranges=[("step", 1000, 2000, MAIN)],
    os_calls=[("read", 900, 1100, MAIN), ("poll", 1200, 1300, MAIN), ("sem_wait", 1000, 2000, HOLDER),
              ("mmap64", 1500, 1510, AUTOGRAD), ("pthread_cond_signal", 1550, 1550, AUTOGRAD), ("read", 2100, 2200, MAIN)],
    calls=[(LAUNCH, 1400, 1410, 1, MAIN), (LAUNCH, 1600, 1610, 2, AUTOGRAD), (LAUNCH, 1620, 1630, 3, AUTOGRAD)],
    switches=[(1050, MAIN, 0, True, 0), (1800, MAIN, 0, False, SLEEPS), (2050, MAIN, 0, True, 0),
              (1500, AUTOGRAD, 1, True, 0), (1700, AUTOGRAD, 1, False, SLEEPS),
              (1000, WORKER, 2, True, 0), (1900, WORKER, 2, False, SLEEPS),
              # Too short to be shown.
              (1000, HOLDER, 3, True, 0), (1009, HOLDER, 3, False, SLEEPS)],
    names={MAIN: "python3", AUTOGRAD: "pt_autograd_0"},
    samples=[(990, MAIN, [("_PyEval_EvalFrameDefault", "/usr/bin/python3")]),
             (1090, MAIN, [("_PyEval_EvalFrameDefault", "/usr/bin/python3")]), (1190, MAIN, [("read", "/lib/libc.so.6")]),
             # The thread was off the CPU for long before this one.
             (1500, MAIN, [("0x7f00", "/lib/libtorch.so"), ("main", "/usr/bin/python3")]), (1610, MAIN, []),
             (1550, AUTOGRAD, [("cuLaunchKernel", "/lib/libcuda.so.1")]), (1650, WORKER, [("x", "y")])],
)  # fmt: skip


class Step(NamedTuple):
    process: int = PROCESS
    begin: int = 1000
    end: int = 2000


@pytest.fixture
def export(tmp_path: Path) -> Iterator[nsys_trace.Trace]:
    yield from opened(TRACE.write(tmp_path / "t.sqlite"))


def opened(path: Path) -> Iterator[nsys_trace.Trace]:
    with closing(sqlite3.connect(path)) as database:
        yield nsys_trace.Trace(database, nsys_trace.list_tables(database))


def spans(table: pd.DataFrame | str) -> list[tuple]:
    assert isinstance(table, pd.DataFrame) and list(table.columns) == tracks.COLUMNS
    assert table["value"].isna().all() and (table["unit"] == "").all()
    return list(table[["track", "label", "start_ns", "end_ns"]].itertuples(index=False, name=None))


def test_threads_that_launch_run_or_are_off_the_cpu(export: nsys_trace.Trace) -> None:
    """A worker is of another process, and a thread that ran for less than 1 % of the step is not worth a row."""
    assert spans(tracks.supply_thread_states(export, Step())) == [
        ("pt_autograd_0", "off the CPU", 0, 500),
        ("pt_autograd_0", "running", 500, 700),
        ("pt_autograd_0", "off the CPU", 700, 1000),
        ("main thread", "off the CPU", 0, 50),
        ("main thread", "running", 50, 800),
        ("main thread", "off the CPU", 800, 1000),
    ]


def test_calls_of_the_threads_that_launch(export: nsys_trace.Trace) -> None:
    assert spans(tracks.supply_os_calls(export, Step())) == [
        ("calls: pt_autograd_0", "mmap64", 500, 510),
        ("calls: main thread", "read", 0, 100),
        ("calls: main thread", "poll", 200, 300),
    ]


def test_functions_in_which_the_threads_that_launch_were_sampled(export: nsys_trace.Trace) -> None:
    """Samples are 100 ns apart where a thread runs, and the last one of a thread stands for so long, too."""
    assert spans(tracks.supply_samples(export, Step())) == [
        ("functions: pt_autograd_0", "cuLaunchKernel", 550, 655),
        ("functions: main thread", "_PyEval_EvalFrameDefault", 0, 190),
        ("functions: main thread", "read", 190, 295),
        ("functions: main thread", "in libtorch.so", 500, 605),
    ]


def test_a_single_sample_stands_for_a_millisecond(tmp_path: Path) -> None:
    one = replace(TRACE, samples=[(1100, MAIN, [("f", "m")])])
    for trace in opened(one.write(tmp_path / "t.sqlite")):
        found = spans(tracks.supply_samples(trace, Step(end=3_001_000)))
        assert found == [("functions: main thread", "f", 100, 1_000_100)]
    # Sampled, but never within the step, or without a stack.
    for other in ([(9000, MAIN, [("f", "m")])], [(1100, MAIN, [])]):
        for trace in opened(replace(TRACE, samples=other).write(tmp_path / f"{other[0][0]}.sqlite")):
            assert spans(tracks.supply_samples(trace, Step())) == []


def test_threads_of_one_name_have_numbers(tmp_path: Path) -> None:
    several = replace(TRACE, names={MAIN: "python3", AUTOGRAD: "python3", HOLDER: "python3"})
    for trace in opened(several.write(tmp_path / "t.sqlite")):
        named = spans(tracks.supply_os_calls(trace, Step()))
        assert [row[0] for row in named] == ["calls: python3 8", *["calls: main thread"] * 2]
    for trace in opened(replace(TRACE, names={}).write(tmp_path / "u.sqlite")):
        assert spans(tracks.supply_os_calls(trace, Step()))[0][0] == "calls: 8"


def test_calls_too_short_to_be_seen_are_left_out(tmp_path: Path) -> None:
    longer = replace(TRACE, os_calls=[("read", 1000, 1499, MAIN), ("poll", 1600, 2600, MAIN)])
    for trace in opened(longer.write(tmp_path / "t.sqlite")):
        found = spans(tracks.supply_os_calls(trace, Step(end=1_001_000)))
        assert found == [("calls: main thread", "poll", 600, 1600)]


def test_where_nothing_is_launched_the_main_thread_is_shown(export: nsys_trace.Trace) -> None:
    early = Step(begin=1000, end=1350)
    assert {row[0] for row in spans(tracks.supply_os_calls(export, early))} == {"calls: main thread"}


@pytest.mark.parametrize(
    ("supply", "lacking"),
    [
        (tracks.supply_thread_states, "SCHED_EVENTS"),
        (tracks.supply_samples, "COMPOSITE_EVENTS"),
        (tracks.supply_os_calls, "OSRT_API"),
    ],
)
def test_what_was_not_recorded_is_said(tmp_path: Path, supply, lacking: str) -> None:  # type: ignore[no-untyped-def]
    for trace in opened(TRACE.write(tmp_path / "t.sqlite", [lacking])):
        assert supply(trace, Step()) == f"the trace holds no {LACKING[lacking]}"


MB = 1 << 20


@pytest.fixture
def trace(recording: Callable, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """A copy of the recorded training, with the spans of its steps."""
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    with open_trace(path) as opened:
        return path, gpu_memory.read_step_spans(opened)


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
    assert device["t_ns"].iloc[1] == third + 100 - spans["start"][0]
    assert set(table["process"]) == {process >> 24 & 0xFFFFFF}
    write_csv(table, str(tmp_path / "m.csv"))
    read = csv_tables.read(tmp_path / "m.csv", gpu_memory.TABLE)
    assert list(read["in_use_bytes"]) == list(table["in_use_bytes"])
    assert gpu_memory.tabulate_memory(path, whole_run=True)[1] == []
    # A table that does not add up is refused.
    assert gpu_memory.TABLE.holds(table) is None
    assert "not what was taken" in str(gpu_memory.TABLE.holds(table.drop(index=device.index[1])))


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
    with open_trace(path) as opened:
        found, missing = tracks.collect_tracks(SUPPLIERS, opened, step)
    assert not {"SMs active", "memory: device"} & {*found["track"]} and len(missing) >= 2
    assert any("nsys.gpu_metrics" in line for line in missing)
    assert any("nsys.cuda_memory_usage" in line for line in missing)
    times = np.arange(begin - 250_000, end + 250_000, 100_000)
    sampled_traces.add_metrics(path, times, {"SM Active [Throughput %]": np.arange(len(times))})
    events = [
        (begin - 9, 1, MB, DEVICE, False), (begin + 600_000, 2, MB, DEVICE, False), (begin - 8, 3, 16, PINNED, False)
    ]  # fmt: skip
    sampled_traces.add_memory(path, process, events)
    with open_trace(path) as opened:
        found, missing = tracks.collect_tracks(SUPPLIERS, opened, step)
    active, memory = found[found["track"] == "SMs active"], found[found["track"] == "memory: device"]
    assert not any("nsys.gpu_metrics" in line or "cuda_memory_usage" in line for line in missing)
    # The first sample had begun 50 us before the step, and the last one ends after it.
    assert list(active["start_ns"]) == [0, *range(50_000, 1_000_000, 100_000)]
    assert list(active["end_ns"]) == [*range(50_000, 1_000_000, 100_000), 1_000_000]
    assert list(active["value"]) == list(range(2, 13)) and set(active["unit"]) == {"%"}
    # A few bytes of pinned memory are not a track of their own.
    assert {name for name in found["track"] if name.startswith("memory")} == {"memory: device"}
    expected = [[0, 600_000, MB], [600_000, 1_000_000, 2 * MB]]
    assert memory[["start_ns", "end_ns", "value"]].to_numpy().tolist() == expected


def test_rows_of_streams_are_drawn_once(trace: tuple[Path, pd.DataFrame]) -> None:
    def supply(*_: object) -> pd.DataFrame:
        return pd.concat([tracks.make_spans(name, [(0, 9, 1.0)]) for name in ("stream 7", "stream 99")])

    timeline, spans = median_step.read_step_with_tracks(trace[0], suppliers=[supply]) or ({}, None)
    assert list(timeline["streams"]) == ["7"] and [track["name"] for track in timeline["tracks"]] == ["stream 99"]
    assert list(spans["track"]) == ["stream 7", "stream 99"]
