"""Collecting jobs as processes of their own, of cells that only pretend to run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from profzoo.cell import settings
from profzoo.config import configuration

PROJECT = Path(__file__).parents[2]
STANDIN = PROJECT / "tests/tools/standins/cell"
# Those that were begun, for whoever sees to it that none outlives its test.
STARTED: list[subprocess.Popen[str]] = []


def begun(folder: Path, window: int, gate: str = "", **variables: str) -> subprocess.Popen[str]:
    """A job that times so many steps into the folder; gate: where its cell waits, and for which file."""
    config = configuration.normalise_config({"device": "cpu", "time": {"window": window}})
    cell = settings.resolve_cell("lstm", "train", "time", config)
    described = {"tool": "time", "cell": cell, "environment": ["PYTHON_GATE"]}
    words = [f"steps={folder / 'train.time.csv'}", f"sidecar={folder / 'train.time.csv.json'}"]
    log = folder / f"{window}.log"
    environment = os.environ | {"PYTHONPATH": f"{STANDIN}:{PROJECT}", **variables}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if gate:
        environment["PYTHON_GATE"] = f"window={window} {gate}"
    job = subprocess.Popen(
        [sys.executable, "-m", "profzoo.collect", "--job", json.dumps(described), "--log", str(log), *words],
        cwd=PROJECT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    STARTED.append(job)
    return job


def ended(job: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit code, and the lines that it said."""
    said, _ = job.communicate(timeout=20)
    return job.returncode, said.splitlines()


def wait(until: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds; fails where it does not in time."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def collected(folder: Path) -> tuple[int, int]:
    """Steps of the table, and those of the job by its sidecar; no other file is there but logs."""
    assert {path.name for path in folder.iterdir() if path.suffix != ".log"} == {
        "train.time.csv", "train.time.csv.json",
    }  # fmt: skip
    rows = (folder / "train.time.csv").read_text().splitlines()[1:]
    return len(rows), json.loads((folder / "train.time.csv.json").read_text())["cell"]["window"]
