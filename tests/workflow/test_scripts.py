"""The workflow on a script as it is: its tables, what measures it again, and what is refused before it runs."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests import slow
from tests.workflow.project import Project, copy

SCRIPT = """\
import sizes
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, sizes.WIDTH), nn.ReLU(), nn.Linear(sizes.WIDTH, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(3, 6)), torch.ones(3, 2)).backward()
    optimizer.step()
"""
CONFIGURATION = """\
tool: torch
models: [mine]
phases: [train]
device: cpu
torch: {window: 2}
settings:
  mine: {command: python own/train.py --fast, inputs: [own/data], window: 3}
"""
TABLES = ("results/mine/train.layers.csv", "results/tables/cells.csv")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A script that was measured with torch.profiler, and timed."""
    project = copy(tmp_path_factory.mktemp("scripts") / "project", CONFIGURATION)
    (project.root / "own" / "data").mkdir(parents=True)
    (project.root / "own" / "train.py").write_text(SCRIPT)
    (project.root / "own" / "sizes.py").write_text("WIDTH = 7\n")
    (project.root / "own" / "unused.py").write_text("")
    (project.root / "own" / "data" / "words.txt").write_text("a b c\n")
    project.snakemake(*TABLES)
    return project


def test_a_script_has_the_tables_of_a_model(measured: Project) -> None:
    layers = pd.read_csv(measured.root / TABLES[0])
    assert {"(root)", "0", "1", "2", "(optimizer)", "(loss)"} <= set(layers["module"])
    assert set(layers.loc[layers["module"] == "0", "direction"]) == {"forward", "backward"}
    row = pd.read_csv(measured.root / TABLES[1]).iloc[0]
    assert (row["model"], row["batch"], row["steps"], row["parameters"]) == ("mine", 3, 3, 6 * 7 + 7 + 7 * 2 + 2)
    assert row["arguments"].startswith("mine train 'command=python own/train.py --fast'")
    facts = json.loads((measured.root / "results/mine/train.time.csv.json").read_text())
    assert set(facts["imports"]) == {"own/train.py", "own/sizes.py"}
    assert facts["script"]["step"] == "a step of SGD" and facts["cell"]["command"] == "python own/train.py --fast"


@pytest.mark.parametrize("name", slow.first(["own/train.py", "own/sizes.py", "own/data/words.txt"]))
def test_what_it_imports_and_its_inputs_measure_it_again(measured: Project, name: str) -> None:
    """And nothing else does; what is put back leaves nothing to be done."""
    path = measured.root / name
    text = path.read_text()
    try:
        path.write_text(f"{text}\n")
        assert {job.rule for job in measured.dry(*TABLES)} >= {"time_training", "profile_torch"}
    finally:
        path.write_text(text)
    (measured.root / "own" / "unused.py").write_text("again = 1\n")
    assert measured.dry(*TABLES) == []


@pytest.mark.parametrize(
    ("given", "said"),
    slow.first([
        ("settings={mine: {command: python own/train.py, batch: 3}}", "settings.mine.batch: cannot be applied to a script"),
        ("models=mine@graph", "variants.graph.graph: cannot be applied to a script from outside"),
        ("settings={mine: {command: python own/train.py, inputs: [own/dat]}}", "names 'own/dat', and there is no such"),
        ("settings={mine: {command: python own/train.py, step: optimiser}}", "settings.mine.step = 'optimiser'"),
        ("settings={lstm: {command: python own/train.py}}", "settings.lstm.command: the zoo has a model lstm"),
        ("settings={mine: {comand: python own/train.py}}", "unknown model 'mine'"),
    ], 2),
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_runs(measured: Project, given: str, said: str) -> None:
    key, _, value = given.partition("=")
    folder = Path(measured.root)
    text = CONFIGURATION if key == "models" else CONFIGURATION[: CONFIGURATION.index("settings:")]
    (folder / "tiny.yaml").write_text(f"{text}\n")
    try:
        done = measured.snakemake("results/tables/cells.csv", "--config", f"{key}={value}", ok=False)
    finally:
        (folder / "tiny.yaml").write_text(CONFIGURATION)
    assert done.returncode and said in done.stdout + done.stderr, done.stdout + done.stderr
