"""A run that is cut off keeps what it has, leaves nothing half-written, and goes on from there."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.workflow.project import Project, finished

FIRST, SECOND = "results/lstm/train.time.csv", "results/lstm/inference.time.csv"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_cut_off_goes_on(fresh: Project, recorded: Path, number: signal.Signals) -> None:
    fresh.recording, fresh.variables = recorded, {"PYTHON_PAUSE": "inference 600"}
    # Of several jobs that are ready Snakemake runs any, unless told which.
    process = fresh.begun(FIRST, SECOND, "--prioritize", FIRST, "--configfile", "tiny.yaml")
    fresh.variables = {}
    log = fresh.root / "results/logs/lstm/inference.time.log"
    deadline = time.monotonic() + 240
    while not log.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert log.exists() and process.poll() is None
    made = (fresh.root / FIRST).stat().st_mtime_ns
    os.killpg(process.pid, number)
    assert finished(process)[0] != 0
    assert not (fresh.root / SECOND).exists()
    if number == signal.SIGKILL:
        fresh.snakemake("--unlock")
    # What the run was making is on record.
    made_by_now = (fresh.root / ".snakemake/profzoo/made.txt").read_text().splitlines()
    assert {FIRST, SECOND, "results/logs/lstm/inference.time.log"} <= set(made_by_now)
    assert {job.rule for job in fresh.dry(FIRST, SECOND)} == {"time_inference"}
    fresh.snakemake(FIRST, SECOND)
    assert (fresh.root / SECOND).exists() and (fresh.root / FIRST).stat().st_mtime_ns == made
