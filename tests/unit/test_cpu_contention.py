"""cpu_taken: what others have of a CPU; and that tables say so where times are unsteady."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.harness.observers import recorders
from profzoo.statistics import process_repeats
from profzoo.tables import cell_tables
from tests.unit.test_ranges import facts

# Works for so many seconds on one CPU, and prints what others had of that time.
WORKING = """
import os, sys, time
from profzoo.harness.observers.recorders import CpuContention
os.sched_setaffinity(0, {int(sys.argv[1])})
seen, until = CpuContention(), time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    pass
print(seen.share())
"""


@pytest.mark.slow
@pytest.mark.skipif(not recorders.SCHEDULED.exists(), reason="this kernel does not say how long threads wait for a CPU")
def test_three_programs_on_a_cpu_have_a_third_each() -> None:
    words = [sys.executable, "-c", WORKING, str(min(os.sched_getaffinity(0)))]
    with subprocess.Popen([*words, "8"]) as first, subprocess.Popen([*words, "8"]) as second:
        time.sleep(1)
        said = subprocess.run([*words, "2"], capture_output=True, text=True, check=True).stdout
        first.kill()
        second.kill()
    # Other tests may be at work there too.
    assert 0.5 < float(said) <= 1


def test_ticks_of_all_kinds_of_work_are_what_was_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, scheduled = tmp_path / "stat", tmp_path / "schedstat"
    monkeypatch.setattr(recorders, "COUNTED", counted)
    monkeypatch.setattr(recorders, "SCHEDULED", scheduled)
    clock = iter((0, 1000, 0, 1000, 0, 1000, 0, 0, 0, 1000))
    monkeypatch.setattr(recorders.time, "perf_counter_ns", lambda: next(clock))
    counted.write_text("cpu 0 0 0 0 0 0 0 0\n")
    scheduled.write_text("7 100 3\n")
    taken = recorders.CpuContention()
    # user, nice, system, irq, softirq and steal of 1 + 2 + 3 + 6 + 7 + 1 ticks; idle and iowait are not work.
    counted.write_text("cpu 1 2 3 400 500 6 7 1 90 90\n")
    scheduled.write_text("7 300 3\n")
    # 200 of the 1000 - 600 ns that were not rested.
    assert taken.share(600) == pytest.approx(200 / 400 + 1 / 20)
    taken = recorders.CpuContention()
    scheduled.write_text("7 9300 3\n")
    assert taken.share() == 1.0
    # Nobody wanted anything; and in no time at all there are ticks alone to go by.
    assert recorders.CpuContention().share() == 0.0 == recorders.CpuContention().share()
    for text, ticks in (("cpu 1 2 3 400 500 6 7\n", []), ("cpu 1 2 3 4 5 6 7 8\n", [1, 2, 3, 4, 5, 6, 7, 8])):
        counted.write_text(text)
        assert recorders._ticks() == ticks
    counted.unlink()
    scheduled.unlink()
    assert recorders.CpuContention().share() is None


def test_unsteady_times_say_that_others_had_the_cpu() -> None:
    apart = [np.array([100.0, 101, 99]), np.array([130.0, 131, 129])]
    shares = process_repeats.cpu_taken_shares
    assert shares({"processes": [{"cpu_taken_share": 0.31}, {"cpu_taken_share": 0.02}, {}]}) == 0.31
    assert np.isnan(shares({"cpu_taken_share": None})) and np.isnan(shares({}))
    slowest = "the slowest process takes 30% longer than the fastest"
    taken = "other programs used the CPU up to 31% of the time"
    # Who takes the CPU evenly makes all steps longer alike.
    for times, share, said in ((apart, [0.31], f"{slowest}; {taken}"), (apart, [0.02], slowest), (apart[:1], [0.31], taken),
                               (apart[:1], [0.05], None), (apart[:1], [], None)):  # fmt: skip
        assert process_repeats.summarise_processes(times, *share).unsteady == said


def test_steps_of_which_others_had_the_cpu_are_unsteady_in_the_table() -> None:
    """20 steps of 60 ms, all alike, which would take 0.06 by themselves."""
    steps = pd.DataFrame({"wall_ns": [60_000_000] * 20, "gpu_ns": np.nan})
    for taken, unsteady in ((0.87, "other programs used the CPU up to 87% of the time"), (0.01, ""), (None, "")):
        table = cell_tables.cells([({"model": "m", "phase": "train"}, steps, facts(20) | {"cpu_taken_share": taken})])
        assert table["unsteady"].tolist() == [unsteady]
        assert table["cpu_taken_share"].isna().tolist() == [taken is None]
