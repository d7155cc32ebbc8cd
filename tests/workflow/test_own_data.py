"""A data set of a user's own through the workflow: what its samples cost is in steps, data range and verdicts."""

import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.tables import layers, schemas
from profzoo.verdicts import cpu_verdicts, rules
from tests.workflow.project import Project, copy

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
    """Where it left that."""
    return project.root / "results"


@pytest.mark.slow
def test_steps_and_data_take_what_the_samples_take(results: Path) -> None:
    least = BATCH * SLEEP_NS
    assert pd.read_csv(results / "mine/train.time.csv")["wall_ns"].min() >= least
    parts = schemas.read_table("ranges", results / "tables/ranges.csv").set_index("range")["ns_per_step"]
    assert parts["data"] >= least and parts["data"] > 0.5 * parts.sum()
    assert read_json(results / "mine/train.time.csv.json", {})["input"] == {"from": "dataset", "pool": None}


@pytest.mark.slow
def test_the_first_verdict_is_input_bound(results: Path) -> None:
    """Had the unprofiled steps been those under the profiler: other programs may keep them from that."""
    cell = ("mine", "train")
    ranges = schemas.read_table("ranges", results / "tables/ranges.csv")
    timed = schemas.read_table("cells", results / "tables/cells.csv").assign(unsteady="")
    for name in ("step_ns", "step_median_ns", "step_low_ns", "step_high_ns"):
        timed[name] = ranges["ns_per_step"].sum()
    operators = {cell: reading.read(results / "mine/train.operators.csv", layers.OPERATORS_TABLE)}
    first = cpu_verdicts.tabulate_cpu_verdicts(
        timed, ranges, operators, {cell: {"workers": 0}}, rules.load_rules()
    ).iloc[0]
    assert (first["verdict"], first["settings"], first["evidence"]) == ("input-bound", "workers=2", "ranges.csv: data")
    assert first["share"] > 0.5
    written = pd.read_csv(results / "tables/verdicts.csv").iloc[0]
    assert (
        written["verdict"] in ("input-bound", "undecided")
        and "input-bound" in f"{written['verdict']} {written['next_step']}"
    )


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
