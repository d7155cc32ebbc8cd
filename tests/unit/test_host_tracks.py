"""Tracks of threads for the picture of a step, on traces known by heart."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from profzoo.tools.nsys import host_tracks
from profzoo.tools.nsys.host_events import LACKING
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
def export(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, set[str]]]:
    yield from opened(TRACE.write(tmp_path / "t.sqlite"))


def opened(path: Path) -> Iterator[tuple[sqlite3.Connection, set[str]]]:
    with closing(sqlite3.connect(path)) as database:
        yield database, {name for (name,) in database.execute("SELECT name FROM sqlite_master")}


def spans(table: pd.DataFrame | str) -> list[tuple]:
    assert isinstance(table, pd.DataFrame) and list(table.columns) == host_tracks.COLUMNS
    assert table["value"].isna().all() and (table["unit"] == "").all()
    return list(table[["track", "label", "start_ns", "end_ns"]].itertuples(index=False, name=None))


def test_threads_that_launch_run_or_are_off_the_cpu(export: tuple[sqlite3.Connection, set[str]]) -> None:
    """A worker is of another process, and a thread that ran for less than 1 % of the step is not worth a row."""
    assert spans(host_tracks.supply_thread_states(*export, Step())) == [
        ("pt_autograd_0", "off the CPU", 0, 500),
        ("pt_autograd_0", "running", 500, 700),
        ("pt_autograd_0", "off the CPU", 700, 1000),
        ("main thread", "off the CPU", 0, 50),
        ("main thread", "running", 50, 800),
        ("main thread", "off the CPU", 800, 1000),
    ]


def test_calls_of_the_threads_that_launch(export: tuple[sqlite3.Connection, set[str]]) -> None:
    assert spans(host_tracks.supply_os_calls(*export, Step())) == [
        ("calls: pt_autograd_0", "mmap64", 500, 510),
        ("calls: main thread", "read", 0, 100),
        ("calls: main thread", "poll", 200, 300),
    ]


def test_functions_in_which_the_threads_that_launch_were_sampled(export: tuple[sqlite3.Connection, set[str]]) -> None:
    """Samples are 100 ns apart where a thread runs, and the last one of a thread stands for so long, too."""
    assert spans(host_tracks.supply_samples(*export, Step())) == [
        ("functions: pt_autograd_0", "cuLaunchKernel", 550, 655),
        ("functions: main thread", "_PyEval_EvalFrameDefault", 0, 190),
        ("functions: main thread", "read", 190, 295),
        ("functions: main thread", "in libtorch.so", 500, 605),
    ]


def test_a_single_sample_stands_for_a_millisecond(tmp_path: Path) -> None:
    one = replace(TRACE, samples=[(1100, MAIN, [("f", "m")])])
    for database, tables in opened(one.write(tmp_path / "t.sqlite")):
        found = spans(host_tracks.supply_samples(database, tables, Step(end=3_001_000)))
        assert found == [("functions: main thread", "f", 100, 1_000_100)]
    # Sampled, but never within the step, or without a stack.
    for other in ([(9000, MAIN, [("f", "m")])], [(1100, MAIN, [])]):
        for database, tables in opened(replace(TRACE, samples=other).write(tmp_path / f"{other[0][0]}.sqlite")):
            assert spans(host_tracks.supply_samples(database, tables, Step())) == []


def test_threads_of_one_name_have_numbers(tmp_path: Path) -> None:
    several = replace(TRACE, names={MAIN: "python3", AUTOGRAD: "python3", HOLDER: "python3"})
    for database, tables in opened(several.write(tmp_path / "t.sqlite")):
        named = spans(host_tracks.supply_os_calls(database, tables, Step()))
        assert [row[0] for row in named] == ["calls: python3 8", *["calls: main thread"] * 2]
    for database, tables in opened(replace(TRACE, names={}).write(tmp_path / "u.sqlite")):
        assert spans(host_tracks.supply_os_calls(database, tables, Step()))[0][0] == "calls: 8"


def test_calls_too_short_to_be_seen_are_left_out(tmp_path: Path) -> None:
    longer = replace(TRACE, os_calls=[("read", 1000, 1499, MAIN), ("poll", 1600, 2600, MAIN)])
    for database, tables in opened(longer.write(tmp_path / "t.sqlite")):
        found = spans(host_tracks.supply_os_calls(database, tables, Step(end=1_001_000)))
        assert found == [("calls: main thread", "poll", 600, 1600)]


def test_where_nothing_is_launched_the_main_thread_is_shown(export: tuple[sqlite3.Connection, set[str]]) -> None:
    early = Step(begin=1000, end=1350)
    assert {row[0] for row in spans(host_tracks.supply_os_calls(*export, early))} == {"calls: main thread"}


@pytest.mark.parametrize(
    ("supply", "lacking"),
    [
        (host_tracks.supply_thread_states, "SCHED_EVENTS"),
        (host_tracks.supply_samples, "COMPOSITE_EVENTS"),
        (host_tracks.supply_os_calls, "OSRT_API"),
    ],
)
def test_what_was_not_recorded_is_said(tmp_path: Path, supply, lacking: str) -> None:  # type: ignore[no-untyped-def]
    for database, tables in opened(TRACE.write(tmp_path / "t.sqlite", [lacking])):
        assert supply(database, tables, Step()) == f"the trace holds no {LACKING[lacking]}"
