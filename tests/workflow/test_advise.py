"""`profzoo advise` on a script in a folder of its own: what it prints, what it leaves, and what it does when repeated."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.workflow.project import CHECKOUT, Project

# Waits for its data, on a busy machine too.
SCRIPT = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((6,), index / 240), index % 2


torch.set_num_threads(1)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in DataLoader(Images(), batch_size=8):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A user's folder, which holds a script and nothing else."""
    project = Project(tmp_path_factory.mktemp("advised") / "loader")
    project.root.mkdir()
    (project.root / "train.py").write_text(SCRIPT)
    return project


def advise(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    """What `profzoo advise` of this checkout prints in the user's folder; it must succeed."""
    variables = project.environment() | {"PYTHONPATH": str(CHECKOUT), "PWD": str(project.root)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "profzoo", "advise", *words, "--", "python", "train.py"], cwd=project.root,
        env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_one_command_from_a_script_to_advice(project: Project) -> None:
    said = advise(project).stderr
    lines = said.splitlines()
    assert lines[0] == "look    at the first 23 steps of python train.py"
    assert lines[1].startswith("step    a step of SGD: ") and lines[2].startswith("takes   ")
    # On the CPU no other tool is used or named.
    assert "loader train under torch and time; " in said and "ncu" not in said and "nsys" not in said
    answer = next(place for place, line in enumerate(lines) if line.startswith(("gains   ", "verdict ")))
    if lines[answer].startswith("gains   "):
        assert "workers=" in lines[answer]
        assert lines[answer + 1].startswith("        profzoo advise --try workers=")
    assert "input-bound" in lines[answer] and lines[-1] == "report  profzoo-results/results/report.html"
    # Everything lies in one folder, which git leaves alone, and scripts are found beside it.
    assert {path.name for path in project.root.iterdir() if path.name != "__pycache__"} == {
        "train.py",
        "profzoo-results",
    }
    results = project.root / "profzoo-results"
    assert (results / ".gitignore").read_text() == "*\n" and (results / "results" / "report.html").exists()

    again = advise(project).stderr.splitlines()
    assert again[0].startswith("Nothing to be done") and again[1] == lines[answer] and again[-1] == lines[-1]
    config = yaml.safe_load(advise(project, "--show-config").stdout)
    assert config["models"] == ["loader"] and config["settings"]["loader"]["folder"] == str(project.root)
    (project.root / "train.py").write_text(SCRIPT.replace("lr=0.1", "lr=0.2"))
    there = Project(results, variables=project.variables)
    planned = subprocess.run(
        [sys.executable, "-m", "snakemake", "report", "-n"], cwd=there.root, env=project.environment(), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert planned.returncode == 0 and "train.py has changed" in planned.stdout + planned.stderr, planned
    assert not Path(results / "config" / "config.yaml").read_text().count(str(project.root))
