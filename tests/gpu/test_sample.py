"""Sampling a real GPU: its energy by two ways agrees, and its power is a GPU's."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.machine import gpus
from profzoo.tools.sample import activity, doctor, nvml
from tests.gpu.running import run_snakemake

CELL = "mobilenetv2/train"
# Long enough for some fifty moves of the counter of energy.
STEPS = 600


def idle_w() -> float:
    """The least power of the first GPU over two seconds in which nothing is asked of it."""
    with nvml.open_library() as library:
        device = library.device(gpus.choose_candidates({}, library.present())[0])
        powers = []
        for _ in range(20):
            powers.append(device.reading()["power_mw"])
            time.sleep(0.1)
    assert all(power is not None for power in powers)
    return min(power for power in powers if power is not None) / 1e3


@pytest.fixture(scope="module")
def idle() -> float:
    return idle_w()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, idle: float) -> Path:
    """What snakemake makes of one cell, sampled, in a folder of its own; idle power is asked for first."""
    folder = tmp_path_factory.mktemp("results")
    settings = ["models=mobilenetv2", f"pathvars={{results: {folder}}}", f"window={STEPS}"]
    run_snakemake(f"{folder}/{CELL}.sample.csv", "--config", *settings)
    return folder


def facts(results: Path) -> dict[str, Any]:
    return json.loads((results / f"{CELL}.sample.csv.json").read_text())


def columns(results: Path) -> dict[str, Any]:
    """What the cell has of its samples."""
    return dict(activity.summarise_cell(pd.read_csv(results / f"{CELL}.sample.csv"), facts(results)))


def test_doctor_finds_everything() -> None:
    found = doctor.check_nvml()
    assert found.advice is None and "; no " not in found.found, found.found


def test_the_window_is_sampled_at_about_the_interval(results: Path) -> None:
    sidecar = facts(results)
    assert sidecar["gaps"] == [] and sidecar["power_is"] == nvml.INSTANT
    asked = float(sidecar["options"][1])
    assert asked <= sidecar["interval_reached_ms"] < 1.5 * asked


def test_energy_by_the_counter_and_by_power_agree(results: Path) -> None:
    found = columns(results)
    print(
        f"\nenergy a step: {found['step_energy_counter_j']:.4f} J counted, {found['step_energy_power_j']:.4f} J by power"
    )
    assert found["step_energy_counter_j"] == pytest.approx(found["step_energy_power_j"], rel=0.1)


def test_power_lies_between_idle_and_the_boards_limit(results: Path, idle: float) -> None:
    (limit,) = facts(results)["power_limits_w"].values()
    print(f"\npower: {idle:.0f} W idle, {columns(results)['power_w']:.0f} W in the window, limit {limit:.0f} W")
    assert idle < columns(results)["power_w"] < limit


def test_doctor_knows_the_state_of_the_gpu() -> None:
    """NVML's own numbers are plausible, and equal what nvidia-smi prints of the same GPU."""
    clocks, power = doctor.check_clocks(), doctor.check_power()
    assert clocks and re.match(r"\d+ of at most \d+ MHz", clocks.found) and power
    query = ["nvidia-smi", "--query-gpu=clocks.max.sm,power.default_limit,enforced.power.limit", "--format=csv,noheader,nounits"]  # fmt: skip
    first = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    assert f"of at most {first[0]} MHz" in clocks.found and power.found.startswith(f"{float(first[2]):.0f} W")
    assert ("the default" in power.found) and (power.advice is None) == (float(first[2]) >= float(first[1]))


def test_doctor_sees_another_program_on_the_gpu() -> None:
    """In some containers NVML lists no processes at all; where it lists this one, doctor names it."""
    code = "import torch; kept = torch.ones(2**28, device='cuda'); print('here', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "here\n"
        found = doctor.check_others()
        other.communicate("\n")
    if found and found.found == "none":
        pytest.skip("NVML lists no processes here")
    assert found and found.advice and re.search(r"\(process \d+", found.found)
