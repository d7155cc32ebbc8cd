"""`profzoo advise` on a script in a folder of its own: what it prints, what it leaves, and what it does when repeated."""

import re
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
    project = Project(tmp_path_factory.mktemp("advised") / "loader", forks_cells=False)
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
    assert lines[0].startswith(
        "plan    3 runs of python train.py, about 23 steps each: a first look, then time and torch "
    )
    assert lines[1].startswith("step    a step of SGD: ") and lines[2].startswith("takes   ")
    # On the CPU no other tool is used or named.
    assert "loader train under torch and time; " in said and "ncu" not in said and "nsys" not in said
    line = 1 + SCRIPT.splitlines().index("for images, labels in DataLoader(Images(), batch_size=8):")
    answer = lines[-5:]
    assert re.fullmatch(rf"change  train.py:{line}: DataLoader\(..., num_workers=\d+\)", answer[0]), said
    assert answer[1].startswith("gain    at most ") and answer[2].startswith("why     input-bound: ")
    assert answer[3:] == [
        "try     profzoo advise --try 3m -- python train.py",
        "report  profzoo-results/results/report.html",
    ]
    # Everything lies in one folder, which git leaves alone, and scripts are found beside it.
    assert {path.name for path in project.root.iterdir() if path.name != "__pycache__"} == {
        "train.py",
        "profzoo-results",
    }
    results = project.root / "profzoo-results"
    assert (results / ".gitignore").read_text() == "*\n" and (results / "results" / "report.html").exists()

    config = yaml.safe_load(advise(project, "--show-config").stdout)
    assert config["models"] == ["loader"] and config["settings"]["loader"]["folder"] == str(project.root)
    assert not Path(results / "config" / "config.yaml").read_text().count(str(project.root))


@pytest.mark.slow
def test_advice_is_told_again_until_the_script_changes(project: Project) -> None:
    """As of other scripts in tests/workflow/test_scripts.py."""
    results, answer = project.root / "profzoo-results", advise(project).stderr.splitlines()[-5:]
    again = advise(project).stderr.splitlines()
    assert again == ["nothing has changed since the last run, which said:", *answer]
    (project.root / "train.py").write_text(SCRIPT.replace("lr=0.1", "lr=0.2"))
    planned = subprocess.run(
        [sys.executable, "-m", "snakemake", "report", "-n"], cwd=results, env=project.environment(), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert planned.returncode == 0 and "train.py has changed" in planned.stdout + planned.stderr, planned
    (project.root / "train.py").write_text(SCRIPT)


@pytest.mark.slow
def test_a_try_measures_what_the_advice_proposes_on_a_script_that_soon_ends(project: Project) -> None:
    """Its 30 steps are over before a window of two seconds is; the same random numbers show what it computes."""
    advise(project)
    tried = advise(project, "--try", "1m")
    # By the length of its numbers, a line goes on in the next one.
    change, gain, *_ = re.sub(r"\n {8}", " ", tried.stdout).splitlines()
    assert re.fullmatch(r"change  train.py:\d+: DataLoader\([^)]*\)", change), tried.stdout
    assert gain.startswith("gain    measured: ") and gain.endswith("; computes the same"), tried.stdout
    assert [line for line in advise(project).stderr.splitlines() if line.startswith("gain    measured: ")]
