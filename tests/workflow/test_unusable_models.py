"""Bad files in models/ cost their own cells alone; a model of one phase, and one of a data set of a user's own, run through."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io.scripts import read_json
from profzoo.tables import schemas
from tests import slow
from tests.workflow.project import Project, copy, rules

ONE_PHASE = """
import torch
from torch import nn

GROUPS = ("mine",)
WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}


def build(shape):
    return nn.Linear(3, 2)


def sample(shape, generator):
    return torch.rand(3, generator=generator), 0
"""


@pytest.fixture(scope="module")
def littered(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a good model of one phase, and what may lie in models/ besides."""
    project = copy(tmp_path_factory.mktemp("littered") / "project")
    project.write("models/mine.py", ONE_PHASE)
    project.write("models/broken.py", "def (")
    project.write("models/helper.py", "def layers(): ...\n")
    (project.root / "models" / "latin.py").write_bytes(b"name = '\xe9'")
    (project.root / "models" / ".#mine.py").symlink_to("someone@host.4711")
    os.mkfifo(project.root / "models" / "pipe.py")
    (project.root / "models" / "tables.py").write_text(ONE_PHASE)
    (project.root / "models" / "user.py").write_text(f"from models import broken\n{ONE_PHASE}")
    return project


def test_all_leaves_bad_files_out_and_says_so(littered: Project) -> None:
    run = littered.snakemake("all", "--dry-run", "--config", "models=all", "tool=time")
    warnings = [line for line in run.stderr.splitlines() if "profzoo: warning:" in line]
    assert [line.split(":")[2] for line in warnings] == [
        f" models = all leaves out {name}" for name in ("broken", "latin", "pipe", "tables", "user")
    ]
    assert warnings[0].endswith("broken.py: model 'broken' is not Python: invalid syntax (line 1)")
    assert "results/mine/inference.time.csv" in run.stdout and "results/mine/weights.pt" not in run.stdout
    assert "results/unet/train.time.csv" in run.stdout and "results/helper/" not in run.stdout


@pytest.mark.slow
def test_other_models_are_none_the_wiser(littered: Project) -> None:
    run = littered.snakemake("results/lstm/train.time.csv", "--dry-run")
    assert "warning" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    slow.first(
        [
            (["all", "--config", "models=lstm,broken"], "models = 'broken': "),
            (["results/broken/train.time.csv"], "target 'results/broken/train.time.csv': "),
        ]
    ),
)
def test_asking_for_a_bad_file_names_it_in_one_line(littered: Project, words: list[str], line: str) -> None:
    run = littered.snakemake(*words, "--dry-run", ok=False)
    printed = (run.stdout + run.stderr).splitlines()
    assert run.returncode
    assert (
        len([one for one in printed if one.startswith(line) and "models/broken.py: model 'broken' is no" in one]) == 1
    )


@pytest.mark.slow
def test_a_phase_that_a_model_lacks_is_named(littered: Project) -> None:
    run = littered.snakemake("results/mine/train.time.csv", ok=False)
    assert (
        "model 'mine' has no phase 'train' in trimmed: valid are: inference" in (run.stdout + run.stderr).splitlines()
    )


@pytest.mark.slow
def test_a_model_of_one_phase_runs_through(littered: Project) -> None:
    littered.draw_one()
    littered.snakemake("all", "--config", "models=mine", "tool=torch")
    made = littered.files()
    assert {"mine/inference.time.csv", "mine/inference.torch.csv", "report.html"} <= made
    assert not any(name.startswith(("mine/train", "mine/weights")) for name in made)
    assert littered.read("results/tables/cells.csv").count("\n") == 2
    assert rules(littered.dry("all", "--config", "models=mine", "tool=torch")) == set()


SLEEP_NS, BATCH = 5e6, 4
MODEL = f'''"""A small network whose samples take 5 ms each to read."""

import time

import torch
from torch import nn
from torch.utils.data import Dataset

WORKLOADS = {{"trimmed": {{"train": {{"batch": {BATCH}}}}}}}


class Slow(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep({SLEEP_NS / 1e9})
        return torch.full((8,), float(index)), index % 2


def build(shape):
    return nn.Linear(8, 2)


def dataset(shape):
    return Slow()
'''
CONFIG = {
    "tool": "torch", "models": {"mine": {"module": "mine", "threads": 1}}, "phases": ["train"], "device": "cpu",
    "warmup": 1, "time": {"window": 12}, "torch": {"window": 6},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy in which the workflow made the report of that model."""
    made = copy(tmp_path_factory.mktemp("data") / "project", json.dumps(CONFIG))
    made.draw_one()
    made.write("mine.py", MODEL)
    made.snakemake("report")
    return made


@pytest.fixture(scope="module")
def results(project: Project) -> Path:
    return project.root / "results"


@pytest.mark.slow
def test_steps_and_data_take_what_the_samples_take(results: Path) -> None:
    least = BATCH * SLEEP_NS
    assert pd.read_csv(results / "mine/train.time.csv")["wall_ns"].min() >= least
    parts = schemas.read_table("ranges", results / "tables/ranges.csv").set_index("range")["ns_per_step"]
    assert parts["data"] >= least and parts["data"] > 0.5 * parts.sum()
    assert read_json(results / "mine/train.time.csv.json", {})["input"] == {"from": "dataset", "pool": None}


def commands(project: Project) -> list[str]:
    """The lines to type that the page and the sidecars show."""
    text = html.unescape(project.read("results/report.html"))
    found = re.findall(r"<code>((?:python|torchrun|snakemake) [^<]*)</code>", text)
    sidecars = (json.loads(path.read_text()) for path in (project.root / "results").rglob("*.json"))
    ran = [one["command"] for one in sidecars if isinstance(one, dict) and "command" in one]
    return [*dict.fromkeys(found), *(shlex.join(words) for words in ran if "models.run" in words)]


@pytest.mark.slow
def test_every_command_that_is_shown_runs(project: Project) -> None:
    """Of those that run the cell, a step; of Snakemake's, the plan; where the model's module is not named, neither can."""
    shown = commands(project)
    assert any(line.startswith("python -m models.run mine train ") for line in shown)
    for line in shown:
        words = shlex.split(line)
        if words[0] == "snakemake":
            planned = project.snakemake(*words[1:], "--dry-run").stdout
            assert f"{words[1]}" in planned and "unknown" not in planned
            continue
        place = words.index("models.run") + 1
        assert "module=mine" in words[place:]
        own = [word for word in words[place:] if "=" in word or word in ("mine", "train")]
        done = subprocess.run(
            [sys.executable, "-m", "models.run", *own, "window=1", "warmup=3", "samples=null", "epochs=1"],
            cwd=project.root, env=project.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
