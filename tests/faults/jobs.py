"""Collecting jobs in separate processes, with cells that only simulate a run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.machine import process_tree

PROJECT = Path(__file__).parents[2]
STANDIN = PROJECT / "tests/tools/standins/cell"
# All started jobs; a fixture ends those that outlive their test.
STARTED: list[subprocess.Popen[str]] = []


def begun(folder: Path, window: int, gate: str = "", **variables: str) -> subprocess.Popen[str]:
    """Start a job that times some steps; gate: point at which its cell waits, and the file that it waits for."""
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
    """Wait for a job, and return its exit code and its lines."""
    said, _ = job.communicate(timeout=60)
    return job.returncode, said.splitlines()


def wait(until: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds; fails if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def wait_for_ends(ids: Collection[int], seconds: float = 60) -> None:
    """Wait until these processes have ended; fails if one of them has not in time."""
    wait(lambda: not any(map(process_tree.is_alive, ids)), seconds)


def collected(folder: Path) -> tuple[int, int]:
    """Return the steps in the table and in the sidecar; check that no other files exist except logs."""
    assert {path.name for path in folder.iterdir() if path.suffix != ".log"} == {
        "train.time.csv", "train.time.csv.json",
    }  # fmt: skip
    rows = (folder / "train.time.csv").read_text().splitlines()[1:]
    return len(rows), json.loads((folder / "train.time.csv.json").read_text())["cell"]["window"]
