"""What threads did, by a real Nsight Systems: a program whose own clocks measure its waits and its time on the CPU."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.nsys.host import host_tables
from tests.workflow.project import CHECKOUT
from tests.workflow.test_nsys import NSYS
from tests.workflow.test_nsys import pytestmark as pytestmark

PROGRAM = CHECKOUT / "tests" / "scripts" / "known_waits.py"
# By the call in which a wait of the program shows.
CALLS = {"sleep": "clock_nanosleep", "lock": "sem_wait", "read": "read", "poll": "poll"}
# The first step is left out of what is told per step.
COUNTED = slice(1, None)
# Python's part of a wait, which the program's clock measures and nsys does not.
PYTHON_NS = 2e5


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, pd.DataFrame], dict]:
    """The tables of the program, and what it measured itself."""
    assert NSYS
    folder = tmp_path_factory.mktemp("known")
    environment = os.environ | {"PYTHONPATH": str(NSYS.parent / "python"), "PATH": f"{NSYS}:{os.environ['PATH']}"}
    options = ["--trace=nvtx,osrt", "--sample=process-tree", "--cpuctxsw=process-tree", "--backtrace=fp"]
    words = ["nsys", "profile", *options, "--export=sqlite", "--output", "known", sys.executable, str(PROGRAM)]
    subprocess.run(
        [*words, "--measured", "known.json"], cwd=folder, env=environment, check=True, capture_output=True, timeout=120
    )
    export = folder / "known.sqlite"
    with closing(sqlite3.connect(export)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if "SCHED_EVENTS" not in tables:
        pytest.skip("this machine does not let nsys trace context switches")
    return host_tables.make_tables(str(export))[0], json.loads((folder / "known.json").read_text())


def test_the_idle_gpu_waits_for_the_calls_of_the_program(traced: tuple[dict[str, pd.DataFrame], dict]) -> None:
    """On a CPU all of the step is idle time of the GPU; each kind of wait is right within 2 %."""
    tables, measured = traced
    idle = tables["idle"].set_index("os_call")
    # Where another program takes the core between a call and the program's look at its clock, the program counts more.
    taken = idle.loc[idle["kind"].isin(["", "condition"]), "off_ns"].sum()
    for wait, call in CALLS.items():
        own = measured[wait][COUNTED]
        expected = sum(own) / len(own)
        assert 0.98 * expected - PYTHON_NS - taken <= idle.loc[call, "idle_ns"] <= 1.02 * expected, wait
        assert idle.loc[call, "calls"] >= 1
    assert (idle["thread"] == measured["threads"]["main"]).all() and set(idle["cause"]) == {"host"}
    # Who held the lock and who wrote is named; nobody ends a sleep.
    assert idle.loc["sem_wait", "woken_by"] == measured["threads"]["holder"]
    # On a busy machine the reader may come to a core only long after it could go on.
    assert idle.loc["read", "woken_by"] == measured["threads"]["writer"] or pd.isna(idle.loc["read", "woken_by"])
    assert pd.isna(idle.loc["clock_nanosleep", "woken_by"])
    assert idle.loc["sem_wait", "kind"] == "lock" and idle.loc["poll", "kind"] == "poll"


def test_time_on_the_cpu_is_what_the_kernel_accounts(traced: tuple[dict[str, pd.DataFrame], dict]) -> None:
    tables, measured = traced
    threads = tables["threads"]
    mine = threads[threads["thread"] == measured["threads"]["main"]]
    assert mine["runs_step"].all() and len(mine) == len(measured["cpu"])
    # The program reads its clock within the step, so that it misses a little of it. The kernel accounts to no thread what
    # interrupts take on a busy machine, and nsys does: most steps have few.
    share = float(np.median(mine["running_ns"].to_numpy() / np.array(measured["cpu"])))
    assert 0.98 <= share <= 1.02 + PYTHON_NS / float(np.median(measured["cpu"]))
    assert (mine["running_ns"] + mine["off_ns"] + mine["lost_ns"]).tolist() == mine["wall_ns"].tolist()
    longest = [max(CALLS, key=lambda wait: measured[wait][step]) for step in range(len(mine))]
    assert mine["left_in"].tolist() == [CALLS[wait] for wait in longest]
    # One more or less at the edges of each step.
    assert mine["switches"].sum() == pytest.approx(sum(measured["switches"]), rel=0.02, abs=len(mine))
    assert (mine["cores"] <= len(os.sched_getaffinity(0))).all() and (mine["cores"] >= 1).all()
    others = threads[threads["thread"] == measured["threads"]["writer"]]
    assert len(others) == len(mine) and not others["runs_step"].any()
    assert (others["running_ns"] < others["off_ns"] / 10).all()


def test_what_a_thread_left_the_cpu_in_adds_up(traced: tuple[dict[str, pd.DataFrame], dict]) -> None:
    tables, measured = traced
    off = tables["off_cpu"]
    mine = off[off["thread"] == measured["threads"]["main"]]
    by_call = mine.groupby("os_call")["off_ns"].sum()
    taken = by_call[[call for call in by_call.index if call not in CALLS.values()]].sum()
    for wait, call in CALLS.items():
        expected = sum(measured[wait])
        assert 0.98 * expected - PYTHON_NS * len(measured[wait]) - taken <= by_call[call] <= 1.02 * expected, wait
    threads = tables["threads"].groupby("thread")["off_ns"].sum()
    assert off.groupby("thread")["off_ns"].sum().to_dict() == threads[threads > 0].to_dict()


def test_samples_are_of_the_thread_that_computes(traced: tuple[dict[str, pd.DataFrame], dict]) -> None:
    tables, measured = traced
    samples = tables["samples"]
    mine = samples[samples["thread"] == measured["threads"]["main"]]
    assert mine["samples"].sum() > 0.9 * samples["samples"].sum()
    # A sample a millisecond of its time on the CPU; nsys may drop some.
    running_ms = sum(measured["cpu"]) / 1e6
    assert 0.5 * running_ms < mine["samples"].sum() < 1.2 * running_ms
    assert mine["share"].sum() == pytest.approx(1)
    assert mine["module"].str.contains("python|libc|vdso").any()
