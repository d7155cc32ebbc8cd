"""How the profiles choose jobs: by priority and free GPUs, and without taking time from those that run."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.faults.jobs import wait
from tests.workflow.project import CHECKOUT, heed_interrupts

PROFILES = sorted(path.parent.name for path in CHECKOUT.glob("profiles/*/config.yaml"))
# Jobs that take a GPU each, the last the most urgent, and note when they had it.
URGENT = """
rule all:
    input: [f"out{number}" for number in range(6)]

for number in range(6):
    rule:
        name: f"job{number}"
        output: f"out{number}"
        priority: number
        resources: gpu=1
        shell: "date +%s.%N > {output}; sleep 0.4; date +%s.%N >> {output}"
"""
# A first dozen that end at once, and others of which one runs and the rest wait.
WAITING = """
rule all:
    input: [f"out{number}" for number in range(50)]

rule one:
    output: "out{number}"
    resources: gpu=1
    shell: "test $(ls | grep -c out) -lt 12 || sleep 600; touch {output}"
"""


def begun(folder: Path, text: str, *words: str) -> subprocess.Popen[bytes]:
    """Snakemake on such a workflow, by the default profile."""
    (folder / "Snakefile").write_text(text)
    log = (folder / "log").open("w")
    profile = ["--workflow-profile", str(CHECKOUT / "profiles/default")]
    command = [sys.executable, "-m", "snakemake", "-j8", *profile, "--verbose", *words]
    return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, process_group=0, preexec_fn=heed_interrupts)


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End the process with all that it started after the body, because Snakemake would wait for a minute by itself."""
    try:
        yield process
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def test_urgent_jobs_go_first_and_no_two_share_a_gpu(tmp_path: Path) -> None:
    outputs = [tmp_path / f"out{number}" for number in range(6)]
    with ended(begun(tmp_path, URGENT, "--resources", "gpu=2")):
        wait(lambda: all(path.exists() and path.read_text().count("\n") == 2 for path in outputs))
    spans = {number: [float(line) for line in path.read_text().split()] for number, path in enumerate(outputs)}
    order = sorted(spans, key=lambda number: spans[number][0])
    # Two at a time, so that neighbours may change places.
    assert all(abs(place - (5 - number)) <= 1 for place, number in enumerate(order)), order
    for began, _ in spans.values():
        assert sum(first <= began < last for first, last in spans.values()) <= 2


@pytest.mark.slow
def test_jobs_that_wait_take_no_time_from_the_one_that_runs(tmp_path: Path) -> None:
    """By default Snakemake looks once a second for each job that has ended, and solves its schedule at every look."""
    with ended(begun(tmp_path, WAITING)) as process:
        wait(lambda: len(list(tmp_path.glob("out*"))) >= 12)
        time.sleep(3)
        before, used = looks(tmp_path), psutil.Process(process.pid).cpu_times()
        time.sleep(6)
        assert looks(tmp_path) == before and process.poll() is None
        now = psutil.Process(process.pid).cpu_times()
        # Of six seconds: itself, and what it started and waited for.
        assert sum(now[:4]) - sum(used[:4]) < 0.1


def looks(folder: Path) -> int:
    return len(re.findall(r"Ready jobs", (folder / "log").read_text()))


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_looks_rarely_and_solves_nothing(name: str) -> None:
    profile = yaml.safe_load((CHECKOUT / "profiles" / name / "config.yaml").read_text())
    number, _, span = profile["max-jobs-per-timespan"].partition("/")
    assert profile["scheduler"] == "greedy" and span in ("10s", "1m")
    # As many as there may be jobs in the queue.
    assert int(number) >= profile.get("jobs", 0)
