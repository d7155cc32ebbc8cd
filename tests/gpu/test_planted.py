"""Verdicts on training steps with one planted bottleneck each, and what these are really worth.

PROFZOO_PLANTED_RESULTS names the folder for what is collected, with which another call goes on where this one ended:
where a command may take ten minutes, `timeout -s INT 570 python -m pytest -s tests/gpu/test_planted.py`, and again.
"""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo import tools
from profzoo.config import configuration
from profzoo.statistics.percentiles import drop_warmup
from tests.gpu import planted
from tests.gpu.running import make_results

FOLDER = "PROFZOO_PLANTED_RESULTS"
# What a GPU waits for is the whole cell's; what its kernels do is that of the layer which launches them as well.
VERDICTS = {
    "copies": ["transfer-bound"],
    "items": ["synchronisation-bound"],
    "waits": ["synchronisation-bound"],
    # A GPU waits for such kernels where its CPU takes longer to launch one than it takes to run.
    "tiny": ["latency-bound (short kernels)", "launch-bound"],
    "loader": ["input-bound"],
    "doubles": ["double precision"],
    "strides": ["uncoalesced access"],
}
OF_LAYERS = {
    "tiny": ["latency-bound (short kernels)"],
    "doubles": ["double precision"],
    "strides": ["uncoalesced access"],
    "channels": ["work beyond need", "off tensor cores", "compute-bound (SIMT)"],
}
# Of the rest the advice is to do something else than what the mended step does.
GAINS = ("copies", "items", "waits", "tiny", "loader")
# Products that tensor cores would speed up come before what is planted beside them. Of few channels these are what is
# wasted.
SETTINGS = {name: {"precision": "bf16"} for name in ("items", "waits", "channels", "doubles")}
# What is collected besides times and traces: modules, where layers are judged; and counters, by which other verdicts
# could come first, and without which none would tell that strides are mended.
TORCH = list(OF_LAYERS)
NCU = [*planted.PROGRAMS, "strides@mended"]
# Of this one only the time counts.
UNTRACED = "channels@mended"
# What roofline has, and what loads and stores move and need.
SETS = configuration.normalise_config({})["ncu"]["sets"]
METRICS = [
    *SETS["roofline"]["metrics"],
    *(name for name in SETS["memory"]["metrics"] if "mem_global" in name or name.startswith("lts__")),
]
COLLECTING = ["-j8", "--resources", "gpu=2"]


def given() -> dict[str, Any]:
    """The configuration but for folders: all steps with and without their bottleneck."""
    models = {
        name: {"module": planted.__name__, "program": name, **SETTINGS.get(name, {})} for name in planted.PROGRAMS
    }
    return {
        "models": [*models, *(f"{name}@mended" for name in models)],
        "settings": models,
        "variants": {"mended": {"fault": False}},
        "phases": ["train"],
        "tool": ["nsys", "torch", "ncu"],
        # One of each will do, and takes one start of ncu.
        "ncu": {"set": "planted", "launches": "distinct", "sets": {"planted": {"metrics": METRICS}}},
        "locks": {"overlap": True},
    }


def collected(results: Path) -> list[str]:
    """The files that take a GPU, and what is exported of them."""
    config = configuration.normalise_config(given())
    parts = {"time": config["models"], "torch": TORCH, "ncu": NCU}
    parts["nsys"] = [name for name in config["models"] if name != UNTRACED]
    patterns = {tool: tools.files()[tool].required_files(config[tool]) for tool in parts}
    files = [
        f"{results}/{name}/{pattern.format(phase='train')}"
        for tool, names in parts.items()
        for name in names
        for pattern in patterns[tool]
    ]
    return [*files, f"{results}/peaks/{config['gpu']}.csv"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of the steps with and without their bottleneck."""
    folder = Path(os.environ.get(FOLDER) or tmp_path_factory.mktemp("planted")).absolute() / "results"
    make_results(given(), folder, *collected(folder), *COLLECTING)
    # Not all tools saw all steps: of what is there, and no more.
    make_results(given(), folder, f"{folder}/tables/verdicts.csv", "-j8", "--config", "collect=false")
    return folder / "tables"


def leading(results: Path, level: str) -> pd.DataFrame:
    """The first verdict of each cell on a level."""
    return pd.read_csv(results / "verdicts.csv").query("level == @level and rank == 1").set_index("model")


def worth(results: Path, program: str) -> float:
    """How many times as fast the step is without its bottleneck."""
    step_ns = pd.read_csv(results / "cells.csv").set_index("model")["step_ns"]
    return float(step_ns[program] / step_ns[f"{program}@mended"])


@pytest.mark.parametrize("program", list(VERDICTS))
def test_a_planted_bottleneck_is_named_first(results: Path, program: str) -> None:
    verdicts = leading(results, "cell")
    found, measured = verdicts.loc[program], worth(results, program)
    print(f"{program}: {found['verdict']}, expected {found['gain']:.2f} x, measured {measured:.2f} x")
    assert measured > 1.1
    assert found["verdict"] in VERDICTS[program] and found["method"] == "replay"
    left = verdicts.loc[f"{program}@mended"]
    assert left["verdict"] not in VERDICTS[program] or left["gain"] < found["gain"]


@pytest.mark.parametrize("program", GAINS)
def test_the_gain_of_a_planted_bottleneck_is_what_it_is_worth(results: Path, program: str) -> None:
    found, measured = leading(results, "cell").loc[program], worth(results, program)
    # Of the time that it saves: a gain of nine times is one of eleven where a fiftieth of the step is told otherwise.
    assert 1 - 1 / found["gain"] == pytest.approx(1 - 1 / measured, rel=0.25)


@pytest.mark.parametrize("program", list(OF_LAYERS))
def test_the_layer_of_a_planted_bottleneck_is_named_first(results: Path, program: str) -> None:
    found = leading(results, "layer").loc[program]
    print(f"{program}: {found['module']} {found['direction']}: {found['verdict']}")
    assert found["module"] == "beside" and found["verdict"] in OF_LAYERS[program]
    assert worth(results, program) > 1.1


@pytest.mark.parametrize("program", list(planted.PROGRAMS))
def test_a_step_takes_what_events_say(results: Path, program: str) -> None:
    cells = pd.read_csv(results / "cells.csv").set_index("model")
    rows = pd.read_csv(results.parent / program / "train.time.csv")
    counted = drop_warmup(rows["gpu_ns"].to_numpy(dtype=float))
    assert cells.loc[program, "step_ns"] == pytest.approx(counted.mean(), rel=1e-3)
