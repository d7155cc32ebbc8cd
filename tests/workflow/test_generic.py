"""The workflow through stand-ins for LSF and PBS Pro that run its jobs, by profiles/generic."""

import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import slow
from tests.workflow.batch import LONG, ON_GPU, TARGET, a_failing_job_costs_nothing_else
from tests.workflow.loopback import waited
from tests.workflow.project import CHECKOUT, Project, copy, finished, rules

PROGRAMS = {"lsf": ("bsub", "bjobs", "bhist", "bkill"), "pbs": ("qsub", "qstat", "qdel")}
# Sites may look less often; tests have no time for that.
PROFILE = [
    "--configfile", "tiny.yaml", "--workflow-profile", "profiles/generic", "--seconds-between-status-checks", "1",
]  # fmt: skip


@dataclass
class Site(Project):
    """A copy of the project on the login node of that queue."""

    queue: Path = field(kw_only=True)

    def environment(self) -> dict[str, str]:
        own = super().environment()
        return own | {"QUEUE": str(self.queue), "PATH": f"{self.queue.parent / 'programs'}:{own['PATH']}"}

    def begun(self, *words: str) -> subprocess.Popen[str]:
        """Snakemake in the background, by the profile."""
        return super().begun(*words, *PROFILE)

    def submitted(self) -> dict[str, list[str]]:
        """By their numbers the jobs that there were, and with which words."""
        return {path.parent.name: path.read_text().splitlines() for path in sorted(self.queue.glob("*/words"))}

    def running(self) -> list[str]:
        """The numbers of the jobs that run."""
        ended = {path.parent.name for name in ("code", "killed") for path in self.queue.glob(f"*/{name}")}
        return [job for job in self.submitted() if job not in ended]

    def misbehave(self, how: str, does: bool = True) -> None:
        (self.queue / how).touch() if does else (self.queue / how).unlink()


def sited(folder: Path, system: str, recording: Path) -> Site:
    """A copy of the project with one model that was recorded, and the programs of that queue."""
    (folder / "queue").mkdir()
    (folder / "programs").mkdir()
    for name in PROGRAMS[system]:
        (folder / "programs" / name).symlink_to(CHECKOUT / "tests" / "tools" / "queue" / "queue.py")
    return Site(copy(folder / "project", ON_GPU).root, recording=recording, queue=folder / "queue")


@pytest.fixture(params=slow.first(["lsf", "pbs"]))
def site(tmp_path: Path, recorded: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = sited(tmp_path, request.param, recorded)
    yield site
    for job in site.running():
        os.killpg(int((site.queue / job / "pid").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_everything_is_made_and_a_second_run_does_nothing(site: Site) -> None:
    site.misbehave("forgetful")
    # One queue goes through all of it, with all figures, and the other through one phase with one figure.
    lsf = site.queue.parent.joinpath("programs/bsub").exists()
    phases = ["train", "inference"] if lsf else ["train"]
    if not lsf:
        site.draw_one()
    asked_for = ["all", "--config", f"phases={','.join(phases)}"]
    code, output = site.ended(*asked_for)
    assert code == 0, output
    assert site.read("results/report.html") and site.read(f"results/lstm/{phases[-1]}.torch.csv")
    jobs = [" ".join(words) for words in site.submitted().values()]
    with_gpu = [words for words in jobs if "-gpu num=1" in words or ":ngpus=1" in words]
    # Each cell is collected twice on a GPU; exports go together, as do tables, figures and report.
    assert len(with_gpu) == (4 if lsf else 2) and len(jobs) - len(with_gpu) <= 3, jobs
    assert all("mem=16000" in words for words in with_gpu)
    # The report's five jobs that could run side by side: a group is held to what a collecting job takes.
    asked = [re.search(r"(?:-n |ncpus=)(\d+).*mem=(\d+)", words) for words in jobs]
    assert all(found and int(found[1]) <= 4 and int(found[2]) <= 16000 for found in asked), jobs
    assert site.dry(*asked_for) == []


@pytest.mark.slow
def test_a_failing_job_costs_nothing_else(site: Site) -> None:
    if site.queue.parent.joinpath("programs/qsub").exists():
        site.misbehave("unkept")
    a_failing_job_costs_nothing_else(site)
    before = len(site.submitted())
    code, output = site.ended(TARGET)
    assert code == 0, output
    assert len(site.submitted()) == before + 1


@pytest.mark.faults
def test_an_interrupt_cancels_all_that_run(site: Site) -> None:
    site.variables = LONG
    run = site.begun(TARGET, "results/unet/train.time.csv", "--config", "models=[lstm,unet]")
    # Both at a time: what limits one job of the queue does not limit the queue.
    waited(lambda: len(site.running()) == 2, 240, "two jobs to run")
    # Cancelling takes longer than the two seconds that the plugin gives it.
    site.misbehave("slow")
    time.sleep(1.5)
    os.killpg(run.pid, signal.SIGINT)
    code, output = finished(run)
    assert code != 0 and not site.files(), output
    waited(lambda: not site.running(), 120, "the queue to be empty")


@pytest.mark.faults
def test_a_cancelled_job_is_noticed_and_a_queue_that_is_away_outlasted(site: Site) -> None:
    site.variables = LONG
    run = site.begun(TARGET)
    waited(lambda: bool(site.running()), 240, "a job to run")
    site.misbehave("away")
    with pytest.raises(subprocess.TimeoutExpired):
        run.communicate(timeout=8)
    assert len(site.running()) == 1
    site.misbehave("away", does=False)
    job = site.running()[0]
    lsf = (site.queue.parent / "programs" / "bkill").exists()
    subprocess.run(
        ["bkill", job] if lsf else ["qdel", f"{job}.server"], env=site.environment(), check=True, capture_output=True
    )
    code, output = finished(run)
    assert code == 1 and "Error in rule time_training" in output
    # A queue that kills leaves the claim on what was being made, which goes with the next run.
    assert site.files() <= {"lstm/.train.time.csv.making/claim.json"}


@pytest.mark.slow
def test_doctor_looks_at_a_node_and_answers_in_the_terminal(tmp_path: Path, recorded: Path) -> None:
    site = sited(tmp_path, "lsf", recorded)
    code, output = site.ended("doctor")
    assert code == 0, output
    assert f"Checks on {platform.node()}:" in output.splitlines()
    assert "This machine can profile with: torch (on the CPU)." in output
    (words,) = site.submitted().values()
    assert "num=1" in words
    # What was found holds for that moment alone.
    assert "examine_machine" in rules(site.dry("doctor"))
