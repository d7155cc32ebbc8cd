"""Runs snakemake on planted cases, for no longer than it may take."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.planted import configuration
from tests.planted.cases import Case

PROJECT = Path(__file__).parents[2]
# How long a run may take to end once it is told to, in seconds, before it is killed.
ENDING_S = 20.0


def begin_snakemake(
    folder: Path,
    cases: Sequence[Case],
    tiny: bool,
    words: Sequence[str],
    name: str = "snakemake",
    counters: bool = False,
) -> subprocess.Popen[bytes]:
    """Start snakemake with the configuration of these cases; what it says goes to `NAME.log` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.yaml"
    # JSON is YAML.
    file.write_text(
        json.dumps(configuration.given(cases, tiny, counters) | {"pathvars": {"results": str(folder / "results")}})
    )
    command = [sys.executable, "-m", "snakemake", "--nolock", *words, "--configfile", str(file)]
    with (folder / f"{name}.log").open("ab") as log:
        # In a group of its own, so that it can be told to end with all its jobs.
        return subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log, start_new_session=True)


def wait_for(run: subprocess.Popen[bytes], until: float) -> int | None:
    """Wait until a run ends, and end it at a time of time.monotonic(); returns its exit code, None if it was ended."""
    try:
        return run.wait(None if until == math.inf else max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        run.wait(ENDING_S)
    # What is left of the group: programs in the background of a shell ignore an interrupt.
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return None


def last_lines(folder: Path, name: str = "snakemake", count: int = 25) -> str:
    """The end of what the snakemake of this name said."""
    return "\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-count:])
