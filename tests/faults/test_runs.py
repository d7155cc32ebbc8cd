"""Runs of snakemake that meet another run, what one left that was killed, or damaged files."""

import os
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
from tests.faults.jobs import wait
from tests.workflow.project import STANDINS, TINY, Project, copy, finished, rules, said

TARGET = "results/lstm/train.time.csv"


@pytest.fixture(autouse=True)
def none_waits(tmp_path: Path) -> Iterator[None]:
    """Cells that still wait go on at the end, and end."""
    yield
    (tmp_path / "gate").touch()


@pytest.fixture
def pretending(tmp_path: Path) -> Project:
    """A copy of which cells only pretend to run; those of 60 steps wait for the file `gate` beside it."""
    return pretended(tmp_path / "project")


def pretended(root: Path) -> Project:
    project = copy(root, f"{TINY}variables: [PYTHON_GATE]\n")
    gate = root.parent / "gate"
    project.variables = {"PYTHONPATH": str(STANDINS / "cell"), "PYTHON_GATE": f"window=60 half {gate}"}
    return project


def waiting(project: Project) -> subprocess.Popen[str]:
    """A run whose cell has begun, and waits."""
    run = project.begun(TARGET, "--configfile", "tiny.yaml", "--config", "time={window: 60}")
    reached = project.root.parent / "gate.reached"
    wait(lambda: reached.exists() or run.poll() is not None, 60)
    assert run.poll() is None, finished(run)
    return run


def steps(project: Project) -> int:
    return len(project.read(TARGET).splitlines()) - 1


@pytest.mark.slow
def test_a_job_that_outlives_its_snakemake_does_not_replace_what_the_next_run_made(pretending: Project) -> None:
    run = waiting(pretending)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    # Which `clean` goes by.
    assert "results/lstm/.train.time.csv.making" in pretending.read(".snakemake/profzoo/made.txt").splitlines()
    five = (TARGET, "--config", "time={window: 5}")
    pretending.snakemake(*five)
    (pretending.root.parent / "gate").touch()
    # The job holds the pipe that the run has printed into.
    printed = finished(run)[1]
    assert steps(pretending) == 5
    assert "is left as it is" in printed or "profzoo: " not in printed
    again = pretending.snakemake(*five)
    assert "Nothing to be done" in again.stdout + again.stderr
    assert pretending.files() == {"lstm/train.memory.csv", "lstm/train.time.csv", "lstm/train.time.csv.json"}


@pytest.mark.slow
def test_two_checkouts_do_not_run_on_the_same_results_at_once(tmp_path: Path) -> None:
    one, other = (pretended(tmp_path / name) for name in ("one", "other"))
    (other.root / "results").symlink_to(one.root / "results")
    (one.root / "results").mkdir()
    run = waiting(one)
    try:
        refused = other.snakemake(TARGET, ok=False)
        assert refused.returncode != 0
        text = refused.stdout + refused.stderr
        line = next(line for line in text.splitlines() if "is in use by another run" in line)
        assert f"process {run.pid} on " in line and str(one.root) in line and "pathvars" in line
        assert "Traceback" not in text and not said(refused)
        assert other.snakemake("clean", ok=False).returncode != 0
        # A dry run changes nothing, and who asks for no lock gets none.
        assert rules(other.dry(TARGET)) == {"time_training"}
        other.snakemake("results/unet/train.time.csv", "--nolock")
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        finished(run)
    # The lock has gone with its holder, and what its job left goes with the next.
    other.snakemake(TARGET)
    ends = ("memory.csv", "time.csv", "time.csv.json")
    made = {f"{model}/train.{end}" for model in ("lstm", "unet") for end in ends}
    assert steps(other) == 2 and other.files() == made


LOCKLESS = """
import errno, fcntl, os
def flock(file, how):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
"""


@pytest.mark.slow
def test_results_on_a_file_system_without_locks_are_made_and_one_line_says_so(tmp_path: Path) -> None:
    project = copy(tmp_path / "project")
    (without := tmp_path / "without").mkdir()
    (without / "sitecustomize.py").write_text(LOCKLESS)
    # Jobs of others on this machine, whose locks work, would take its folder for a dead job's. Of a short path.
    with tempfile.TemporaryDirectory(prefix="lockless-", dir="/tmp") as temporary:
        project.variables = {"PYTHONPATH": str(without), "TMPDIR": temporary}
        code, text = project.ended(TARGET, "--configfile", "tiny.yaml")
        assert not list(Path(temporary).glob("profzoo-job-*"))
    warned = (
        "profzoo: warning: results is on a file system without locks (No locks available), so that nothing keeps two"
    )
    assert code == 0 and text.count("without locks") == text.count(warned) == 1 and "Errno" not in text, text
    assert steps(project) == 2 and not (project.root / "results" / ".profzoo.lock").exists()


@pytest.mark.slow
def test_a_link_in_the_place_of_the_lock_of_results_ends_a_run_in_one_line(pretending: Project) -> None:
    (results := pretending.root / "results").mkdir()
    (mine := pretending.root.parent / "mine.txt").write_text("precious")
    (results / ".profzoo.lock").symlink_to(mine)
    refused = pretending.snakemake(TARGET, ok=False)
    text = refused.stdout + refused.stderr
    said = "results cannot be locked for this run: results/.profzoo.lock is a symbolic link, which profzoo did not make"
    assert refused.returncode != 0 and text.count(said) == 1 and "Traceback" not in text, text
    assert mine.read_text() == "precious" and not list(results.glob("lstm/*"))
    (results / ".profzoo.lock").unlink()
    pretending.snakemake(TARGET)


@pytest.mark.faults
def test_damaged_weights_are_named_with_the_command_that_makes_them_again(pretending: Project) -> None:
    timed = ("results/lstm/inference.time.csv", "--config", "weights=trained")
    pretending.snakemake(*timed)
    weights = pretending.root / "results/lstm/weights.pt"
    weights.write_bytes(weights.read_bytes()[:-100])
    (pretending.root / timed[0]).unlink()
    run = pretending.snakemake(*timed, ok=False)
    (line,) = said(run)
    assert run.returncode != 0 and line.startswith("results/lstm/weights.pt is damaged (it has ")
    assert line.endswith("`snakemake --force results/lstm/weights.pt` makes it again")
    assert weights.exists() and line in pretending.read("results/logs/lstm/inference.time.log")
    pretending.snakemake("--force", "results/lstm/weights.pt")
    pretending.snakemake(*timed)
    assert file_checks.find_flaw(weights) is None and (pretending.root / timed[0]).exists()


OWN = ("mystuff/run1.nsys/precious.csv", "archive/2024.old.ncu-ranks/notes.txt", "peaks/mygpu.csv", "lstm/train.sqlite")


@pytest.mark.faults
def test_clean_after_a_kill_removes_what_was_left_and_nothing_of_ones_own(pretending: Project) -> None:
    for name in OWN:
        (pretending.root / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        pretending.write(f"results/{name}", "precious")
    run = waiting(pretending)
    job = next(iter((pretending.root / "results/lstm/.train.time.csv.making").glob("*/")))
    # As nsys leaves it beside its report.
    (job / "train.sqlite").touch()
    (wrapper,) = children(pretending, "-m profzoo.collect ")
    for process in (wrapper, run.pid):
        os.kill(process, signal.SIGKILL)
    finished(run)
    wait(lambda: not children(pretending, "models.run"))
    assert (job / "train.sqlite").exists()
    pretending.snakemake("clean")
    left = {path for path in (pretending.root / "results").rglob("*") if path.is_file()}
    assert {str(path.relative_to(pretending.root / "results")) for path in left} == set(OWN)


def children(project: Project, words: str) -> list[int]:
    """The processes of a project's runs with these words in their command line."""
    found = []
    for process in process_tree.running_processes():
        with suppress(OSError):
            line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            inside = Path(f"/proc/{process}/cwd").readlink().is_relative_to(project.root)
            # Not the shell around it.
            if inside and words in line and Path(line.split(" ")[0]).name.startswith("python"):
                found.append(process)
    return found


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_closed_terminal_ends_all_and_the_next_run_goes_on(pretending: Project, number: signal.Signals) -> None:
    """All of a terminal's processes get that signal; snakemake itself ends by it at once."""
    run = waiting(pretending)
    os.killpg(run.pid, number)
    assert finished(run)[0] != 0
    wait(lambda: not children(pretending, "python"), 10)
    pretending.snakemake(TARGET)
    ends = ("memory.csv", "time.csv", "time.csv.json")
    assert steps(pretending) == 2 and pretending.files() == {f"lstm/train.{end}" for end in ends}


@pytest.mark.faults
def test_results_of_a_clock_that_was_ahead_are_made_again_once(pretending: Project) -> None:
    """The clock has jumped back by a day since: what is made now is older than what was there."""
    pretending.snakemake(TARGET)
    ahead = time.time() + 24 * 3600
    for path in (pretending.root / "results").rglob("*"):
        os.utime(path, (ahead, ahead))
    pretending.snakemake(TARGET, "--config", "time={window: 5}")
    assert steps(pretending) == 5
    again = pretending.snakemake(TARGET, "--config", "time={window: 5}")
    assert "Nothing to be done" in again.stdout + again.stderr
