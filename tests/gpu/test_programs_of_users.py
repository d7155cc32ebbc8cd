"""Users' programs through all tools: experts, rows selected by masks, a sparse embedding, own ranges; known answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.gpu.programs import masked, moe, ranged, sparse
from tests.gpu.running import make_results

PROGRAMS = {"moe": moe, "masked": masked, "sparse": sparse, "ranged": ranged}
CELLS = [(name, phase) for name in PROGRAMS for phase in ("train", "inference")]
# Whole turns of the passes that masked's batches need: 1, 2, 3.
NSYS, TORCH = 9, 3
GIVEN: Mapping[str, Any] = {
    "models": {name: {"module": module.__name__} for name, module in PROGRAMS.items()},
    "tool": ["nsys", "torch", "ncu"],
    "nsys": {"window": NSYS},
    "torch": {"window": TORCH},
    "ncu": {"set": "roofline", "budget": "60s"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of the three under every tool, with the report."""
    return make_results(GIVEN, tmp_path_factory.mktemp("results"), "report")


def table(results: Path, name: str, file: str) -> pd.DataFrame:
    return pd.read_csv(results / name / file)


def launches(results: Path, name: str, phase: str, part: str) -> int:
    """Launches in nsys' window of kernels whose names hold that."""
    seen = table(results, name, f"{phase}.nsys.csv")
    return int(seen.loc[seen["kernel"].str.contains(part, regex=False), "launches"].sum())


def calls(results: Path, name: str, phase: str, operator: str) -> int:
    seen = table(results, name, f"{phase}.torch.csv")
    return int(seen.loc[(seen["kind"] == "operator") & (seen["name"] == operator), "count"].sum())


@pytest.mark.parametrize(("name", "phase"), CELLS)
def test_every_tool_has_something_of_every_cell(results: Path, name: str, phase: str) -> None:
    for file in ("time.csv", "nsys.csv", "nsys-steps.csv", "torch.csv", "ncu.roofline.csv", "kernels.csv"):
        assert len(table(results, name, f"{phase}.{file}")), file
    facts = json.loads((results / name / f"{phase}.time.csv.json").read_text())
    assert facts["device_type"] == "cuda" and facts["parameters"] == PROGRAMS[name].PARAMETERS
    assert not [line for line in facts["warnings"] if "memory" in line]


def test_rows_selected_by_masks_launch_as_often_as_their_batches_need(results: Path) -> None:
    # One, two and three passes in turn.
    assert launches(results, "masked", "inference", "tanh") == NSYS // 3 * (1 + 2 + 3)
    assert calls(results, "masked", "inference", "aten::tanh") == TORCH // 3 * (1 + 2 + 3)
    steps = table(results, "masked", "inference.nsys-steps.csv")
    assert len(steps) == 1


@pytest.mark.parametrize("phase", ["train", "inference"])
def test_every_expert_is_looked_for_in_every_layer(results: Path, phase: str) -> None:
    looked = moe.SHAPE["layers"] * moe.SHAPE["experts"]
    assert calls(results, "moe", phase, "aten::nonzero") == TORCH * looked
    # Of a router, one softmax; in inference there is no other.
    if phase == "inference":
        assert launches(results, "moe", phase, "softmax") == NSYS * moe.SHAPE["layers"]
    assert 0 < calls(results, "moe", phase, "aten::gelu") <= TORCH * looked


def test_sparse_gradients_reach_the_optimizer_as_such(results: Path) -> None:
    assert calls(results, "sparse", "train", "aten::_embedding_bag_sparse_backward") == TORCH
    assert launches(results, "sparse", "inference", "EmbeddingBag_updateOutputKernel") == NSYS
    memory = table(results, "sparse", "train.memory.csv")
    # Two averages of each weight; what is counted per tensor is a few bytes.
    assert 0 <= memory["optimizer_bytes"].iloc[0] - 2 * 4 * sparse.PARAMETERS <= 5 * 512 * 4


@pytest.mark.parametrize("phase", ["train", "inference"])
def test_ranges_of_the_program_are_not_taken_for_those_of_the_project(results: Path, phase: str) -> None:
    # From the end of one step to that of the next, so that the first has no time of its own.
    (steps,) = table(results, "ranged", f"{phase}.nsys-steps.csv").to_dict("records")
    assert steps["steps"] == NSYS - 1
    # In each step the chain of tanh, all of it in the forward pass.
    for tool, window in (("nsys", NSYS), ("torch", TORCH)):
        seen = table(results, "ranged", f"{phase}.{tool}.csv")
        if tool == "torch":
            seen = seen[seen["kind"] == "kernel"].rename(columns={"name": "kernel", "count": "launches"})
        forward = seen[seen["kernel"].str.contains("tanh", regex=False) & ~seen["kernel"].str.contains("backward")]
        assert forward["launches"].sum() == window * ranged.PASSES, tool
        assert set(forward["range"]) == {"forward"}, tool
    counted = table(results, "ranged", f"{phase}.ncu.roofline.csv")
    tanh = counted[counted["kernel"].str.contains("tanh", regex=False) & ~counted["kernel"].str.contains("backward")]
    assert set(tanh["range"]) == {"forward"}


def test_a_name_with_quotes_is_read(results: Path) -> None:
    seen = table(results, "ranged", "inference.torch.csv")
    assert ranged.QUOTED.split(",")[0] in " ".join(seen["name"])


def test_the_page_has_every_cell(results: Path) -> None:
    page = (results / "report.html").read_text()
    assert all(f'id="{name}-{phase}"' in page for name, phase in CELLS)
    assert set(pd.read_csv(results / "tables/kernels.csv")["model"]) == set(PROGRAMS)
