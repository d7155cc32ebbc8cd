"""cpu_taken: what others have of a CPU, by real processes on one; and that tables say so where times are unsteady."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.harness import cpu_contention
from profzoo.statistics import process_repeats
from profzoo.tables import cell_tables
from tests.unit.test_ranges import facts

# Works for so many seconds on one CPU, and prints what others had of that time.
WORKING = """
import os, sys, time
from profzoo.harness.cpu_contention import CpuContention
os.sched_setaffinity(0, {int(sys.argv[1])})
seen, until = CpuContention(), time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    pass
print(seen.share())
"""


@pytest.mark.skipif(
    not cpu_contention.SCHEDULED.exists(), reason="this kernel does not say how long threads wait for a CPU"
)
def test_three_programs_on_a_cpu_have_a_third_each() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    words = [sys.executable, "-c", WORKING, cpu, "2"]
    with subprocess.Popen([*words[:-1], "8"]) as first, subprocess.Popen([*words[:-1], "8"]) as second:
        time.sleep(1)
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        first.kill()
        second.kill()
    # Other tests may be at work there too.
    assert 0.5 < float(said) <= 1


def test_what_the_hypervisor_took_is_held_against_what_was_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = tmp_path / "stat"
    monkeypatch.setattr(cpu_contention, "COUNTED", counted)
    monkeypatch.setattr(cpu_contention, "SCHEDULED", tmp_path / "none")
    counted.write_text("cpu  100 0 50 9000 0 0 0 10 0 0\ncpu0 1 2 3\n")
    seen = cpu_contention.CpuContention()
    # Of 100 ticks that were wanted a quarter went elsewhere; a thousand nobody wanted.
    counted.write_text("cpu  160 0 60 10000 0 0 5 35 0 0\n")
    assert seen.share() == pytest.approx(0.25)
    counted.unlink()
    assert cpu_contention.CpuContention().share() is None


def test_unsteady_times_say_that_others_had_the_cpu() -> None:
    apart = [np.array([100.0, 101, 99]), np.array([130.0, 131, 129])]
    share = process_repeats.cpu_taken_shares({"processes": [{"cpu_taken_share": 0.31}, {"cpu_taken_share": 0.02}, {}]})
    assert (
        process_repeats.summarise_processes(apart, share).unsteady
        == "the slowest process takes 30% longer than the fastest; other programs used the CPU up to 31% of the time"
    )
    assert (
        process_repeats.summarise_processes(apart, 0.02).unsteady
        == "the slowest process takes 30% longer than the fastest"
    )
    # Who takes the CPU evenly makes all steps longer alike.
    assert (
        process_repeats.summarise_processes([apart[0]], share).unsteady
        == "other programs used the CPU up to 31% of the time"
    )
    assert (
        process_repeats.summarise_processes([apart[0]], 0.05).unsteady is None
        and process_repeats.summarise_processes([apart[0]]).unsteady is None
    )
    assert np.isnan(process_repeats.cpu_taken_shares({"cpu_taken_share": None})) and np.isnan(
        process_repeats.cpu_taken_shares({})
    )


def test_steps_of_which_others_had_the_cpu_are_unsteady_in_the_table() -> None:
    """20 steps of 60 ms, all alike, which would take 0.06 by themselves."""
    steps = pd.DataFrame({"wall_ns": [60_000_000] * 20, "gpu_ns": np.nan})
    for taken, unsteady in ((0.87, "other programs used the CPU up to 87% of the time"), (0.01, ""), (None, "")):
        table = cell_tables.cells([({"model": "m", "phase": "train"}, steps, facts(20) | {"cpu_taken_share": taken})])
        assert table["unsteady"].tolist() == [unsteady]
        assert table["cpu_taken_share"].isna().tolist() == [taken is None]
