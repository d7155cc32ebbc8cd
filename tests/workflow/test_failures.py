"""A job that fails says why in one line, leaves nothing half-written, and stops only what needs it; so does a cut-off run."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import slow
from tests.faults.jobs import wait
from tests.workflow.project import CHECKOUT, STANDINS, Project, finished, said

OWN_MODEL = '''\
"""A model of the user's own, which fails."""

import torch
from torch import nn

GROUPS = ("classification",)
SOURCE = "none"
PARAMETERS = 6
SHAPE = {}
WORKLOADS = {"trimmed": {"train": {"batch": 2}, "inference": {"batch": 2}}}


def build(shape):
    return nn.Linear(2, 2)


def sample(shape, generator):
    return torch.randn(2, generator=generator), torch.randn(2, generator=generator)


def loss(outputs, target):
    FAILS


def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.1)
'''
ANSWER = re.compile(r"^(?:gains  |verdict) .*$", re.MULTILINE)
RAISES = 'raise RuntimeError("the cat is on the keyboard")'
NAN = "return (outputs - target).sum() * float('nan')"


def own_model(project: Project, fails: str) -> None:
    project.write("mine.py", OWN_MODEL.replace("FAILS", fails))
    project.replace("tiny.yaml", "models: [lstm, unet]", "models: [mine, lstm]\nphases: train")
    project.replace("tiny.yaml", "settings:", "settings:\n  mine: {module: mine}")


def answers(output: str) -> list[str]:
    """The lines that say what a run found: where most can be saved, or what limits a cell."""
    return ANSWER.findall(output)


@pytest.mark.slow
def test_failing_model_leaves_the_others_alone(fresh: Project, recorded: Path) -> None:
    fresh.recording = recorded
    own_model(fresh, RAISES)
    run = fresh.snakemake("all", ok=False)
    assert run.returncode != 0
    assert len(said(run)) == 2, run.stdout + run.stderr
    for line in said(run):
        assert "mine" in line and "the cat is on the keyboard" in line
    # What failed is said again last of all, with how to repeat it.
    last = run.stderr[run.stderr.index("1 job failed, and ") :]
    assert len(re.findall(r"^    why      .*the cat is on the keyboard \(mine.py:22\)$", last, re.MULTILINE)) == 1
    assert "  mine train: torch\n" in last and "    not run  mine train: time\n" in last
    assert "    repeat   snakemake results/mine/train.torch-operators.csv --configfile tiny.yaml" in last
    made = fresh.files()
    assert {"lstm/train.time.csv", "lstm/train.torch.csv"} <= made
    # The report is of what succeeded, and says what did not.
    assert {path.split("/")[0] for path in made} == {"lstm", "tables", "figures", "report.html"}
    assert "report  results/report.html, from the results that succeeded" in last.splitlines()
    assert fresh.read("results/logs/report.rest.log") and not (fresh.root / "<results>").exists()
    page = fresh.read("results/report.html")
    assert "<b>1 of 2 cells is missing</b>" in page
    (row,) = re.findall(r'<tr class="lacking">(.*?)</tr>', page, re.DOTALL)
    assert "mine" in row and "mine train failed with RuntimeError: the cat is on the keyboard" in row
    # It ran under the first tool alone.
    logs = {tool: fresh.read(f"results/logs/mine/train.{tool}.log") for tool in ("torch", "time")}
    assert "Traceback" in logs["torch"]
    assert re.fullmatch(
        r"profzoo: not run under time, because it failed under torch: mine train failed with .*\n", logs["time"]
    )
    # What failed is told as it does, and which was first.
    assert re.search(r"^mine train +torch +failed +\d/\d", run.stderr, re.MULTILINE)
    assert "failed  first: mine train  torch: mine train failed with RuntimeError: the cat" in last
    assert not list(fresh.root.glob(".snakemake/profzoo/run/*"))
    # What to do about the others is said all the same, and again by a run of them alone, which measures nothing.
    (answer,) = answers(last)
    assert " lstm train: " in answer
    alone = fresh.snakemake("report", "--config", "models=lstm", "phases=train").stderr
    assert "/step" not in alone and answers(alone) == [answer]
    again = fresh.snakemake("report", "--config", "models=lstm", "phases=train").stderr
    assert "Nothing to be done" in again and answers(again) == [answer]
    assert again.splitlines()[-1] == "report  results/report.html"


@pytest.mark.slow
def test_what_fails_that_the_report_takes_nothing_of(counted: Project) -> None:
    """A launch of set full takes longer than the budget; what ncu made for the report is in it."""
    own_model(counted, RAISES)
    words = ["--config", "device=auto", "tool=ncu", "ncu={set: launch, budget: 1s}"]
    counted.snakemake("results/lstm/train.ncu.csv", *words)
    run = counted.snakemake("all", "results/lstm/train.ncu.full.csv", *words, ok=False)
    assert "  lstm train full: plan ncu\n" in run.stderr and "  mine train: time\n" in run.stderr
    assert "report  results/report.html, from the results that succeeded" in run.stderr.splitlines()
    page = counted.read("results/report.html")
    assert "the cat is on the keyboard" in page and "does not pay" not in page


@pytest.mark.slow
def test_failing_model_is_made_once_it_works(fresh: Project) -> None:
    own_model(fresh, RAISES)
    assert fresh.snakemake("results/mine/train.time.csv", ok=False).returncode != 0
    own = fresh.read("mine.py").replace(RAISES, "return (outputs - target).square().sum()")
    fresh.write("mine.py", own)
    fresh.snakemake("results/mine/train.time.csv")
    assert fresh.files() == {"mine/train.memory.csv", "mine/train.time.csv", "mine/train.time.csv.json"}


@pytest.mark.slow
def test_loss_that_is_not_a_number(fresh: Project) -> None:
    own_model(fresh, NAN)
    targets = ["results/mine/train.torch.csv", "results/mine/inference.time.csv"]
    run = fresh.snakemake(*targets, "--config", "phases=train,inference", "weights=trained", ok=False)
    assert run.returncode != 0
    assert len(said(run)) == 2, run.stderr
    assert all("nan" in line and "mine" in line for line in said(run))
    assert not fresh.files()


@pytest.mark.parametrize(("tool", "target"), slow.first([("ncu", "train.ncu.csv"), ("nsys", "train.nsys.csv")]))
def test_profiler_that_is_not_there(fresh: Project, tool: str, target: str) -> None:
    run = fresh.snakemake(f"results/lstm/{target}", ok=False)
    assert run.returncode != 0
    assert len(said(run)) == 1
    assert said(run)[0].startswith(f"{tool} is not on PATH: install NVIDIA Nsight")
    assert "snakemake doctor" in said(run)[0]
    assert not fresh.files()


@pytest.mark.slow
def test_ncu_without_a_gpu(fresh: Project) -> None:
    fresh.path = (STANDINS,)
    run = fresh.snakemake("results/lstm/train.ncu.csv", ok=False)
    assert run.returncode != 0
    assert len(said(run)) == 1
    assert said(run)[0].startswith("ncu profiles GPUs only, and this cell has none")
    assert not fresh.files()


FIRST, SECOND = "results/lstm/train.time.csv", "results/lstm/inference.time.csv"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_cut_off_goes_on(fresh: Project, recorded: Path, number: signal.Signals) -> None:
    fresh.recording, fresh.variables = recorded, {"PYTHON_PAUSE": "inference 600"}
    # Of several jobs that are ready Snakemake runs any, unless told which.
    process = fresh.begun(FIRST, SECOND, "--prioritize", FIRST, "--configfile", "tiny.yaml")
    fresh.variables = {}
    log = fresh.root / "results/logs/lstm/inference.time.log"
    wait(lambda: log.exists() or process.poll() is not None, 240)
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
from profzoo.workflow import shutdown
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
        wait(lambda: list(tmp_path.glob("out*")), 120)
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
