"""One bad file in models/ costs its own cells alone; a model of one phase has the cells that it declares."""

import os

import pytest

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
    assert warnings[0].endswith("broken.py: model 'broken' is no Python: invalid syntax (line 1)")
    assert "results/mine/inference.time.csv" in run.stdout and "results/mine/weights.pt" not in run.stdout
    assert "results/unet/train.time.csv" in run.stdout and "results/helper/" not in run.stdout


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
