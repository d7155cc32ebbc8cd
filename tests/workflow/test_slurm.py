"""The workflow through a real Slurm on loopback, by profiles/slurm: what it asks for, and what survives what."""

import contextlib
import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.workflow import loopback
from tests.workflow.batch import LONG, TARGET, small
from tests.workflow.project import CHECKOUT, ONE_MODEL, Project, copy, finished

pytestmark = pytest.mark.skipif(
    bool(loopback.missing()), reason=f"no Slurm here: {', '.join(loopback.missing())} missing"
)
PROFILE = ["--configfile", "tiny.yaml", "--workflow-profile", "profiles/slurm"]
# Sites may look less often; tests have no time for that.
SOON = ["--slurm-init-seconds-before-status-checks", "3"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[loopback.Slurm]:
    with started(1) as cluster:
        yield cluster


@contextlib.contextmanager
def started(nodes: int) -> Iterator[loopback.Slurm]:
    """A Slurm of so many nodes; the test is skipped where its daemons do not start."""
    # Not pytest's own folder: the path of a socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="profzoo-") as folder, contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(loopback.running(Path(folder) / "s", nodes))
        except (OSError, TimeoutError) as error:
            pytest.skip(f"Slurm is installed here, but its daemons do not start: {error}")
        yield cluster


@dataclass
class Site(Project):
    """A copy of the project on the login node of that cluster."""

    slurm: loopback.Slurm = field(kw_only=True)

    def environment(self) -> dict[str, str]:
        own = super().environment()
        path = f"{self.slurm.folder / 'bin'}:{own['PATH']}:{loopback.SEARCH}"
        return own | {"SLURM_CONF": self.slurm.environment["SLURM_CONF"], "PATH": path}

    def begun(self, *words: str) -> subprocess.Popen[str]:
        """Snakemake in the background, by the profile."""
        return super().begun(*words, *PROFILE, *SOON)

    def running(self) -> str:
        """The id of the job that runs, once there is one."""
        loopback.waited(lambda: "RUNNING" in self.slurm.jobs().values(), 240, "a job to run")
        return next(job for job, state in self.slurm.jobs().items() if state == "RUNNING")


@pytest.fixture
def site(slurm: loopback.Slurm, tmp_path: Path, recorded: Path) -> Iterator[Site]:
    site = Site(small(tmp_path / "project").root, recording=recorded, slurm=slurm)
    yield site
    for job in slurm.jobs():
        slurm.ask("scancel", job)
    loopback.waited(lambda: not slurm.jobs(), 120, "the queue to be empty")


@pytest.mark.slow
def test_everything_is_made_and_a_second_run_does_nothing(site: Site) -> None:
    before = site.slurm.ask("squeue", "-h", "-t", "all", "-o", "%i").split()
    # Of training alone: the tests of other batch systems go through all of it.
    code, output = site.ended("all", "-p", "--config", "phases=train")
    assert code == 0, output
    assert site.read("results/report.html") and site.read("results/lstm/train.torch.csv")
    asked = site.slurm.ask("squeue", "-h", "-t", "all", "-O", "jobid:10,tres-per-job:30,mintmpdisk:6").splitlines()
    mine = [line.split() for line in asked if line.split()[0] not in before]
    with_gpu = [words for words in mine if "gpu:1" in words[1]]
    # Two cells are collected on a GPU; exports go together, as do tables, figures and report.
    assert len(with_gpu) == 2 and len(mine) - len(with_gpu) <= 3, asked
    # Whose temporary folder that is, is decided on the node.
    assert "tmpdir=<TBD>" in output
    assert site.dry("all", "--config", "phases=train") == []


@pytest.mark.slow
def test_the_report_is_made_of_what_slurm_did_not_refuse(site: Site) -> None:
    asked = ["--config", "models=lstm", "phases=train", "tool=torch", "device=cpu"]
    code, output = site.ended("report", *asked, "--set-resources", "profile_torch:mem_mb=900000")
    assert code == 1 and "report  results/report.html, from the results that succeeded" in output, output


@pytest.mark.slow
def test_what_slurm_refuses_is_told_in_its_own_words(site: Site) -> None:
    """And a cell of the CPU asks for no GPU, under a name that says what it is."""
    site.variables = LONG
    refused = ["time_inference:slurm_partition=nowhere", "profile_torch:mem_mb=900000"]
    targets = [TARGET, "results/lstm/inference.time.csv", "results/lstm/train.torch.csv"]
    run = site.begun(*targets, "--config", "device=cpu", "--set-resources", *refused)
    job = site.running()
    asked = site.slurm.ask("squeue", "-h", "-j", job, "-O", "name:40,tres-per-job:30,minmemory:10,numcpus:5").split()
    assert asked == ["lstm.time_training", "N/A", "8000M", "2"]
    site.slurm.ask("scancel", job)
    code, output = finished(run)
    assert code == 1
    whys = re.findall(r"^    why      (.*)$", output, re.MULTILINE)
    assert len(whys) == 3 and not [why for why in whys if "nothing in its log" in why], output
    told = "\n".join(whys)
    assert re.search(r"Slurm refused it: .*[Ii]nvalid partition.*: `sinfo` lists the partitions; slurm_partition", told)
    assert re.search(r"Slurm refused it: .*[Mm]emory.*: ask for less, by --set-resources profile_torch:mem_mb=MB", told)
    assert "Slurm ended it because it was cancelled (scancel)" in whys


@pytest.mark.faults
def test_a_limit_that_is_too_short_is_named_with_its_key(site: Site) -> None:
    site.variables = LONG
    code, output = site.ended(TARGET, "--set-resources", "time_training:runtime=1")
    assert code == 1
    assert (
        "    why      Slurm ended it at its limit of 1 minutes: give it more by --set-resources time_training:runtime=2\n"
        in output
    )


@pytest.mark.faults
def test_a_cancelled_job_is_noticed(site: Site) -> None:
    site.variables = LONG
    run = site.begun(TARGET)
    site.slurm.ask("scancel", site.running())
    code, output = finished(run)
    assert code == 1 and "CANCELLED" in output
    assert not site.files()


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_in_the_queue(site: Site) -> None:
    site.variables = LONG
    run = site.begun(TARGET)
    site.running()
    run.send_signal(signal.SIGINT)
    code, _ = finished(run)
    assert code != 0 and not site.files()
    loopback.waited(lambda: not site.slurm.jobs(), 120, "the queue to be empty")


@pytest.mark.faults
def test_a_controller_that_restarts_is_outlasted(site: Site) -> None:
    """By default the plugin loses its jobs after five failed queries, and waits for ever."""
    site.variables = {"PYTHON_PAUSE": "train 20"}
    run = site.begun(TARGET)
    log = site.root / "results/logs/lstm/train.time.log"
    # Slurm itself fails a job whose step it cannot start.
    loopback.waited(log.exists, 240, "the job's step")
    site.slurm.stop("slurmctld")
    try:
        # Long enough for more than five queries.
        with pytest.raises(subprocess.TimeoutExpired):
            run.communicate(timeout=40)
    finally:
        site.slurm.start_controller()
    code, output = finished(run)
    assert code == 0, output
    assert site.read(TARGET)


STATES = "1|RUNNING\n2|CANCELLED by 0\n3|COMPLETED\n"


@pytest.mark.parametrize(
    ("sacct", "expected"),
    [
        (f"printf '{STATES}'", "1|RUNNING\n2|CANCELLED\n3|COMPLETED\n"),
        ("echo 'Slurm accounting storage is disabled' >&2; exit 1", "of --name run"),
    ],
)
def test_states_come_from_sacct_or_else_from_squeue(tmp_path: Path, sacct: str, expected: str) -> None:
    own = CHECKOUT / "profiles/slurm/bin"
    for name, body in (("sacct", sacct), ("squeue", 'echo "of $4 $5"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{own}:{tmp_path}:/usr/bin:/bin"}
    command = [str(own / "sacct"), "-X", "--name", "run"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == expected.strip()


def test_a_job_has_the_name_of_its_cell_and_tool(tmp_path: Path) -> None:
    """And sacct, which is asked by the run's name, answers for the numbers of its jobs."""
    own = CHECKOUT / "profiles/slurm/bin"
    for name, body in (("sbatch", 'printf "%s\\n" "$@" > asked; echo 41'), ("sacct", 'printf "%s\\n" "$@" > asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)

    def asked(*words: str) -> list[str]:
        env = {"PATH": f"{own}:{tmp_path}:/usr/bin:/bin"}
        subprocess.run([own / words[0], *words[1:]], cwd=tmp_path, env=env, capture_output=True, check=True)
        return (tmp_path / "asked").read_text().splitlines()

    comment = ["--comment", "rule_profile_nsys_wildcards_lstm_train"]
    words = ["--parsable", "--job-name", "a-uuid", *comment, "--wrap=run 'it' here"]
    assert asked("sbatch", *words) == ["--parsable", "--job-name", "lstm_train.nsys", *comment, words[-1]]
    assert asked("sbatch", "--job-name", "a-uuid", "--comment", "rule_all")[1] == "all"
    assert asked("sacct", "-X", "--name", "a-uuid", "--noheader") == ["-X", "--jobs=41,41", "--noheader"]
    assert asked("sacct", "-X", "--name", "other") == ["-X", "--name", "other"]
    # What is not the plugin's goes through as it is.
    assert asked("sbatch", "--job-name", "mine", "script") == ["--job-name", "mine", "script"]


@pytest.mark.faults
def test_a_node_that_goes_down_and_comes_back(site: Site) -> None:
    site.variables = LONG
    run = site.begun(TARGET)
    job = site.running()
    site.slurm.crash_node()
    try:
        states = ("down", "down*")
        loopback.waited(
            lambda: site.slurm.ask("sinfo", "-h", "-N", "-o", "%T").strip() in states, 240, "the node's loss"
        )
        loopback.waited(lambda: site.slurm.jobs().get(job) != "RUNNING", 120, "Slurm to take the job back")
        assert run.poll() is None
    finally:
        site.slurm.start_node()
    # Slurm starts it anew, by itself after two minutes, for which a test has no time; snakemake waits for it. What
    # the controller still does to the lost job on the node's return must be over, or it hits the new one.
    time.sleep(6)

    def runs_again() -> bool:
        state = site.slurm.jobs().get(job)
        if state == "PENDING":
            # Each time, as it has to wait anew where it was hit nevertheless.
            site.slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        return state == "RUNNING"

    loopback.waited(runs_again, 240, "the job to run again")
    assert run.poll() is None
    site.slurm.ask("scancel", job)
    assert finished(run)[0] == 1


@pytest.mark.slow
def test_a_cell_spreads_over_nodes(tmp_path: Path) -> None:
    with started(2) as cluster:
        made = copy(tmp_path / "project", ONE_MODEL)
        # Both nodes are this machine, whose own name need not lead anywhere.
        site = Site(made.root, variables={"GLOO_SOCKET_IFNAME": "lo"}, slurm=cluster)
        far = ["--config", "variants={far: {nodes: 2, batch: 2}}"]
        code, output = site.ended("results/lstm@far/train.time.csv", *far)
        assert code == 0, output + site.read("results/logs/lstm@far/train.time.log")
        facts = json.loads(site.read("results/lstm@far/train.time.csv.json"))
        (job,) = cluster.ask("squeue", "-h", "-t", "all", "-O", "jobid:10,numnodes:6,tres-per-job:30").splitlines()
        # On the CPU of both.
        assert job.split()[1] == "2" and "gpu" not in job
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1] and facts["items"] == facts["steps"] * 2 * 2
    assert "--nodes=2" not in facts["command"] and "profzoo.collect.multi_node" in facts["command"]
