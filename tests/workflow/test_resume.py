"""A run that is cut off keeps what it has, leaves nothing half-written, and goes on from there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import slow
from tests.workflow.project import CHECKOUT, Project, finished

FIRST, SECOND = "results/lstm/train.time.csv", "results/lstm/inference.time.csv"


@pytest.mark.parametrize("number", slow.first([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
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
    # What the run was making is on record.
    made_by_now = (fresh.root / ".snakemake/profzoo/made.txt").read_text().splitlines()
    assert {FIRST, SECOND, "results/logs/lstm/inference.time.log"} <= set(made_by_now)
    assert {job.rule for job in fresh.dry(FIRST, SECOND)} == {"time_inference"}
    fresh.snakemake(FIRST, SECOND)
    assert (fresh.root / SECOND).exists() and (fresh.root / FIRST).stat().st_mtime_ns == made


MANY = """
from profzoo import shutdown
rule all:
    input: [f"out{number}" for number in range(2000)]
rule one:
    output: "out{number}"
    shell: "touch {output}"
onstart:
    shutdown.heed_sigterm(workflow)
"""


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_at_any_moment_stops(tmp_path: Path) -> None:
    """By several SIGTERMs, as timeout sends them; without `heed` the second or third finds Snakemake's lock held."""
    (tmp_path / "Snakefile").write_text(MANY)
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", "snakemake", "-j4"]
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("out*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(300):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.004)
        try:
            process.wait(60)
        finally:
            process.kill()
    # Of itself, or by one more SIGTERM once it heeds none any longer.
    assert process.returncode in (1, -signal.SIGTERM), (tmp_path / "log").read_text()
    assert 0 < len(list(tmp_path.glob("out*"))) < 2000
