"""A script that writes out a model of the zoo, on a real GPU: the same launches, layers and first verdict."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from profzoo.records.import_graph import PROJECT
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL

MODEL = "mobilenetv2"
CONFIGURATION = f"""\
models: [{MODEL}, script]
phases: [train]
tool: [nsys, torch]
settings:
  script: {{command: python {PROJECT / "tests" / "scripts" / "zoo.py"} {MODEL}}}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both cells under nsys and torch.profiler, with their verdicts."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "c.yaml").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "snakemake", "results/tables/verdicts.csv", "--snakefile", PROJECT / "Snakefile"]
    subprocess.run([*command, "--configfile", "c.yaml"], cwd=folder, check=True)
    return folder / "results"


def launches(results: Path, name: str) -> pd.Series:
    """Launches per step of each kernel in each part of the step, by nsys."""
    table = pd.read_csv(results / name / "train.nsys.csv")
    steps = json.loads((results / name / "train.nsys-rep.json").read_text())["steps"]
    return table.groupby(["kernel", "range"])["launches"].sum() / steps


def test_a_script_launches_what_the_model_of_the_zoo_launches(results: Path) -> None:
    ours, theirs = launches(results, MODEL), launches(results, "script")
    assert ours.sum() > 400
    pd.testing.assert_series_equal(ours, theirs)


def test_a_script_has_the_layers_and_the_first_verdict_of_the_model_of_the_zoo(results: Path) -> None:
    tables = [pd.read_csv(results / name / "train.layers.csv") for name in (MODEL, "script")]
    ours, theirs = ([*zip(table["module"], table["direction"], strict=True)] for table in tables)
    assert set(ours) == set(theirs) and len(ours) > 300
    verdicts = pd.read_csv(results / "tables" / "verdicts.csv")
    verdicts = verdicts[verdicts["level"] == CELL_LEVEL].sort_values("rank").groupby("model")["verdict"].first()
    assert verdicts[MODEL] == verdicts["script"]
