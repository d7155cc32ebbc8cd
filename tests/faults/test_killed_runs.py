"""Kills in real runs: snakemake, what collects, the model and its workers, and nsys with its agents.

Of each in the model's first step, and at ten moments of its life; all of them by `make faults`.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from profzoo.io import file_checks
from profzoo.machine import process_tree
from tests.faults import family
from tests.workflow.project import ONE_MODEL, Project, copy, finished
from tests.workflow.test_nsys import NSYS
from tests.workflow.test_nsys import pytestmark as needs_nsys

# As its first step begins, all of the model's processes are there; so it waits the first time that it is run.
SLOW = """

def transfer(batch, device):
    import os, pathlib, time
    mark = pathlib.Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        time.sleep(60)
    return batch
"""
# nsys ends by itself once what it traces has ended, and finishes its report before.
FINISHING_S = 40.0
TIMED, TRACED = "results/lstm/train.time.csv", "results/lstm/train.nsys.csv"
SHARED = Path("/dev/shm")
# Semaphores of jobs that other tests run at the same time go with those.
OTHERS_S = 60.0
MOMENTS = 10
# How long after it is first seen each is killed at the latest, in seconds: about as long as it lives.
LIVES = {"snakemake": 20.0, "wrapper": 10.0, "nsys": 8.0, "model": 6.0, "worker": 2.0}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose model waits in its first step, with two workers, and says so."""
    given = copy(tmp_path / "project", ONE_MODEL + "workers: 2\nvariables: [MARK]\n")
    # A short path, as sockets of workers and of nsys take.
    (tmp_path / "tmp").symlink_to(temporary := tempfile.mkdtemp())
    given.variables = {"MARK": str(tmp_path / "mark"), "TMPDIR": temporary}
    given.write("models/lstm.py", given.read("models/lstm.py") + SLOW)
    if NSYS:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "nsys").symlink_to(NSYS / "nsys")
        given.path = (tmp_path / "tools",)
        given.variables |= {"PYTHONPATH": str(NSYS.parent / "python")}
    yield given
    for process in marked(tmp_path):
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def word(folder: Path) -> str:
    """What the environment of a run's processes has."""
    return f"MARK={folder / 'mark'}"


def victim(folder: Path, kind: str) -> int:
    """The process of that kind; a model's worker is a model below one."""
    if kind != "worker":
        return family.member(word(folder), kind)
    models = [process for process, line in marked(folder).items() if re.search(family.KINDS["model"], line)]
    return next(process for process in models if int(process_tree.read_stat(process)[1]) in models)


def marked(folder: Path) -> dict[int, str]:
    return family.marked(word(folder))


def left(folder: Path) -> set[str]:
    """What a job leaves outside its results, or has there while it runs."""
    return {str(path) for path in [*(folder / "tmp").glob("*profzoo*"), *SHARED.glob("sem.NSys*")]}


def killed(project: Project, folder: Path, target: str, kind: str, rules: set[str]) -> None:
    """Kill it as the model runs, and see that all has gone in time, and that another run makes what is missing."""
    before = left(folder)
    run = project.begun(target, "--configfile", "tiny.yaml")
    try:
        family.until((folder / "mark").exists, 120)
        os.kill(victim(folder, kind), signal.SIGKILL)

        def over() -> bool:
            # snakemake itself, which goes on to tell what failed.
            return not [line for line in marked(folder).values() if "-m snakemake" not in line]

        family.until(over, FINISHING_S if kind == "model" else family.SECONDS)
        family.until(lambda: left(folder) <= before, OTHERS_S)
    finally:
        code = finished(run, 60)[0]
    assert code and not (project.root / target).exists()
    assert {job.rule for job in project.dry(target)} == rules
    project.snakemake(target)
    assert project.dry(target) == []
    family.until(lambda: left(folder) <= before, OTHERS_S)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["snakemake", "worker"])
def test_a_killed_run_leaves_nothing_and_goes_on(project: Project, tmp_path: Path, kind: str) -> None:
    killed(project, tmp_path, TIMED, kind, {"time_training"})


@pytest.mark.faults
@needs_nsys[0]
@needs_nsys[1]
@pytest.mark.parametrize("kind", ["snakemake", "wrapper", "supervisor", "nsys", "agent", "model"])
def test_a_killed_run_of_nsys_leaves_nothing_and_goes_on(project: Project, tmp_path: Path, kind: str) -> None:
    killed(project, tmp_path, TRACED, kind, {"profile_nsys", "export_nsys"})
    # nsys starts programs with a umask of 0.
    cached = [*project.root.rglob("__pycache__"), *project.root.rglob("*.pyc")]
    assert cached and not [path for path in cached if path.stat().st_mode & 0o022]


def seen(run: subprocess.Popen[str], folder: Path, kind: str) -> int | None:
    """The process of that kind, once there is one; None where the run ends before."""
    if kind == "snakemake":
        return run.pid
    while run.poll() is None:
        with suppress(StopIteration):
            return victim(folder, kind)
    return None


def hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)


def whole(project: Project) -> dict[str, int]:
    """The files that count, when each was made; none is damaged."""
    found = {}
    for name in project.files():
        path = project.root / "results" / name
        if hidden(name):
            continue
        assert file_checks.find_flaw(path) is None, name
        found[name] = path.stat().st_mtime_ns
    return found


@pytest.mark.faults
@needs_nsys[0]
@needs_nsys[1]
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("kind", LIVES)
def test_whatever_is_killed_and_when_nothing_is_lost_or_left(
    project: Project, tmp_path: Path, kind: str, moment: int
) -> None:
    (tmp_path / "mark").touch()
    before, targets = left(tmp_path), (TIMED, TRACED)
    run = project.begun(*targets, "--configfile", "tiny.yaml", "-j1")
    try:
        process = seen(run, tmp_path, kind)
        time.sleep(moment / MOMENTS * LIVES[kind])
        with suppress(ProcessLookupError):
            os.kill(process or 0, signal.SIGKILL) if process else None
        if kind == "snakemake":
            family.until(lambda: not marked(tmp_path), family.SECONDS)
    finally:
        finished(run, 240)
    family.until(lambda: not marked(tmp_path), family.SECONDS)
    family.until(lambda: left(tmp_path) <= before, OTHERS_S)
    # What has its sidecar is whole, and is not made again.
    made = whole(project)
    counted = {name for name in made if f"{name}.json" in made}
    project.snakemake(*targets)
    after = whole(project)
    # A lock and a job's own folder that a kill left go with the next run.
    assert not any(map(hidden, project.files()))
    assert {name: after[name] for name in counted} == {name: made[name] for name in counted}
    assert project.dry(*targets) == []
    family.until(lambda: left(tmp_path) <= before, OTHERS_S)
