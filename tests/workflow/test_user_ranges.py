"""The workflow on a script with ranges of its own: their rows per cell, across cells and on the page."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from profzoo.tables import schemas
from tests.workflow.project import Project, copy, use_nsys
from tests.workflow.test_nsys import NSYS, pytestmark  # noqa: F401

SCRIPT = """\
import nvtx
import torch
from torch import nn
from torch.profiler import record_function

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for place in range(200):
    with record_function("iteration"), nvtx.annotate(f"iteration {place}", domain="mine"):
        optimizer.zero_grad()
        with record_function("model"), nvtx.annotate("model"):
            loss = nn.functional.mse_loss(model(torch.ones(3, 6)), torch.ones(3, 2))
        loss.backward()
        optimizer.step()
"""
CONFIGURATION = """\
tool: nsys,torch
models: [mine, lstm]
phases: [train]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 4}
nsys: {window: 4}
settings:
  mine: {command: python own/train.py}
  lstm: {sequence_length: 8}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A script with ranges, and a model without."""
    assert NSYS
    root = tmp_path_factory.mktemp("ranges") / "project"
    project = copy(root, CONFIGURATION)
    (root / "own").mkdir()
    (root / "own" / "train.py").write_text(SCRIPT)
    use_nsys(project, NSYS)
    project.snakemake("results/report.html")
    return project


@pytest.mark.slow
def test_own_ranges_have_rows_by_what_opened_them(measured: Project) -> None:
    table = pd.read_csv(measured.root / "results/mine/train.ranges.csv").set_index(["api", "range"])
    assert {name for _, name in table.index} == {
        "(step)", "(other)", "iteration", "iteration > model", "iteration #@mine", "iteration #@mine > model",
    }  # fmt: skip
    torch = table.loc["record_function"]
    assert torch.loc["iteration > model", "parent"] == "iteration" and torch.loc["iteration > model", "calls"] == 1
    assert torch.loc[["iteration", "(other)"], "total_ns"].sum() == pytest.approx(torch.loc["(step)", "total_ns"])
    assert torch.loc["iteration", "total_ns"] > 0.5 * torch.loc["(step)", "total_ns"]
    nvtx = table.loc["nvtx"]
    assert nvtx["total_ns"].isna().all() and nvtx.loc["iteration #@mine > model", "calls"] == 1
    assert nvtx.loc["iteration #@mine > model", "cpu_ns"] < nvtx.loc["iteration #@mine", "cpu_ns"]


@pytest.mark.slow
def test_tables_and_page_have_them_of_cells_with_such_ranges_alone(measured: Project) -> None:
    table = schemas.read_table("ranges", measured.root / "results/tables/ranges.csv")
    assert set(table.loc[table["api"] != "", "model"]) == {"mine"} and set(table["model"]) == {"mine", "lstm"}
    assert len(pd.read_csv(measured.root / "results/lstm/train.ranges.csv")) == 0
    assert "user_range" not in pd.read_csv(measured.root / "results/lstm/train.torch.launches.csv")
    page = measured.read("results/report.html")
    blocks = [
        json.loads(text) for text in re.findall(r'<script type="application/json" class="data">(.*?)</script>', page)
    ]
    (tree,) = [block["ranges"] for block in blocks if "ranges" in block]
    assert {"record_function", "record_function > iteration > model", "nvtx"} <= {*tree["name"]["words"]}


@pytest.mark.slow
def test_a_copy_without_traces_keeps_the_rows_that_came_along(measured: Project, tmp_path: Path) -> None:
    other = copy(tmp_path / "project", CONFIGURATION)
    other.path, other.variables = measured.path, measured.variables
    shutil.copytree(measured.root / "own", other.root / "own")
    shutil.copytree(measured.root / "results", other.root / "results")
    for ending in ("nsys.sqlite", "nsys-rep", "trace.json.gz", "torch.ranges.csv"):
        for path in (other.root / "results").rglob(f"train.{ending}"):
            path.unlink()
    (other.root / "results/tables/ranges.csv").unlink()
    other.snakemake("results/tables/ranges.csv", "--config", "collect=false")
    assert other.read("results/mine/train.ranges.csv") == measured.read("results/mine/train.ranges.csv")
    assert other.read("results/tables/ranges.csv") == measured.read("results/tables/ranges.csv")
