"""The programs of users of tests/gpu on a CPU, by time and torch: parameters, calls and memory worked out by hand."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.gpu.programs import masked, moe, sparse
from tests.workflow.project import CHECKOUT, copy

PROGRAMS = {"moe": moe, "masked": masked, "sparse": sparse}
PHASES = ("train", "inference")
WINDOW = 3
CONFIG = {
    "models": {name: {"module": f"programs.{name}"} for name in PROGRAMS},
    "tool": "torch", "device": "cpu", "warmup": 1, "time": {"window": 3}, "torch": {"window": WINDOW},
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the workflow makes of them, modules of the folder that it runs in."""
    project = copy(tmp_path_factory.mktemp("programs") / "project", json.dumps(CONFIG))
    shutil.copytree(CHECKOUT / "tests/gpu/programs", project.root / "programs")
    files = [f"{phase}.{end}.csv" for phase in PHASES for end in ("time", "torch")]
    project.snakemake(*(f"results/{name}/{file}" for name in PROGRAMS for file in files), "results/tables/ranges.csv")
    return project.root / "results"


def calls(results: Path, name: str, phase: str, operator: str) -> int:
    seen = pd.read_csv(results / name / f"{phase}.torch.csv")
    return int(seen.loc[(seen["kind"] == "operator") & (seen["name"] == operator), "count"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("phase", PHASES)
def test_networks_have_the_parameters_that_were_counted(results: Path, name: str, phase: str) -> None:
    facts = json.loads((results / name / f"{phase}.time.csv.json").read_text())
    assert facts["parameters"] == PROGRAMS[name].PARAMETERS and facts["warnings"] == []
    own = {"from": "dataset", "pool": None}
    assert facts["input"] == (own if name == "masked" else {"from": "sample", "pool": 2 * facts["batch"]})


@pytest.mark.slow
def test_batches_take_one_two_and_three_passes_in_turn(results: Path) -> None:
    # Three steps that follow one another, whichever comes first: a linear layer for each pass, and a head for each step.
    assert calls(results, "masked", "inference", "aten::linear") == (1 + 2 + 3) + WINDOW
    assert calls(results, "masked", "inference", "aten::tanh") == 1 + 2 + 3


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_every_expert_is_looked_for_in_every_layer(results: Path, phase: str) -> None:
    assert calls(results, "moe", phase, "aten::nonzero") == WINDOW * 2 * 4
    assert 0 < calls(results, "moe", phase, "aten::gelu") <= WINDOW * 2 * 4


@pytest.mark.slow
def test_sparse_gradients_and_their_optimizer(results: Path) -> None:
    assert calls(results, "sparse", "train", "aten::_embedding_bag_sparse_backward") == WINDOW
    assert calls(results, "sparse", "inference", "aten::embedding_bag") == WINDOW
    held = pd.read_csv(results / "sparse/train.memory.csv")
    # Two averages of each weight, and Adam's count of steps in four bytes for each of the tower's four tensors.
    assert held["optimizer_bytes"].iloc[0] == 2 * 4 * sparse.PARAMETERS + 4 * 4


@pytest.mark.slow
def test_parts_add_up_to_the_steps(results: Path) -> None:
    ranges = pd.read_csv(results / "tables/ranges.csv", keep_default_na=False)
    for (name, phase), parts in ranges.groupby(["model", "phase"]):
        seen = pd.read_csv(results / name / f"{phase}.torch.csv")
        step = seen.loc[(seen["kind"] == "range") & (seen["name"] == "step"), "cpu_ns"].sum() / WINDOW
        assert parts["ns_per_step"].astype(float).sum() == pytest.approx(step, rel=1e-6)
    assert len(ranges.groupby(["model", "phase"])) == 6
