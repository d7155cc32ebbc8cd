"""Verdicts on training steps with one planted bottleneck each, and what these are really worth."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.gpu import planted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch here"),
]
PROJECT = Path(__file__).parents[2]
VERDICTS = {
    "copies": ["transfer-bound"],
    "items": ["synchronisation-bound"],
    # A GPU waits for such kernels where its CPU takes longer to launch one than it takes to run.
    "tiny": ["latency-bound (short kernels)", "launch-bound"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of the steps with and without their bottleneck."""
    folder = tmp_path_factory.mktemp("results")
    models = {name: {"module": planted.__name__, "program": name} for name in planted.PROGRAMS}
    names = [*models, *(f"{name}@mended" for name in models)]
    given = folder / "given.yaml"
    # JSON is YAML.
    given.write_text(
        json.dumps(
            {
                "models": names,
                "settings": models,
                "variants": {"mended": {"fault": False}},
                "phases": ["train"],
                "tool": ["nsys"],
                "pathvars": {"results": str(folder / "results")},
            }
        )
    )
    target = f"{folder}/results/tables/verdicts.csv"
    command = ["snakemake", "--nolock", "-j4", target, "--configfile", str(given)]
    answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder / "results" / "tables"


@pytest.mark.parametrize("program", list(VERDICTS))
def test_a_planted_bottleneck_is_named_first_with_its_gain(results: Path, program: str) -> None:
    verdicts = pd.read_csv(results / "verdicts.csv").query("level == 'cell' and rank == 1").set_index("model")
    step_ns = pd.read_csv(results / "cells.csv").set_index("model")["step_ns"]
    measured = step_ns[program] / step_ns[f"{program}@mended"]
    found = verdicts.loc[program]
    print(f"{program}: {found['verdict']}, expected {found['gain']:.2f} x, measured {measured:.2f} x")
    assert measured > 1.1
    assert found["verdict"] in VERDICTS[program]
    # Of the time that it saves: a gain of nine times is one of eleven where a fiftieth of the step is told otherwise.
    assert 1 - 1 / found["gain"] == pytest.approx(1 - 1 / measured, rel=0.25)
    left = verdicts.loc[f"{program}@mended"]
    assert left["verdict"] not in VERDICTS[program] or left["gain"] < found["gain"]


@pytest.mark.parametrize("program", list(VERDICTS))
def test_a_step_takes_what_events_say(results: Path, program: str) -> None:
    cells = pd.read_csv(results / "cells.csv").set_index("model")
    rows = pd.read_csv(results.parent / program / "train.time.csv")
    assert cells.loc[program, "step_ns"] == pytest.approx(rows["gpu_ns"].iloc[1:].mean(), rel=1e-3)
