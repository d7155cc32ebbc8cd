"""The whole path of sampling through the workflow, by a stand-in for NVML, and what it says where there is no GPU."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests import nvml
from tests.columns import undescribed
from tests.workflow.project import ONE_MODEL, STANDINS, Built, Project, copy, rules, said

SAMPLED = ONE_MODEL.replace("tool: torch", "tool: sample").replace("device: cpu", "device: auto") + (
    "phases: [train]\nsample: {window: 400, interval_ms: 1}\n"
)
CELL = "results/lstm/train"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("sample")
    environment = nvml.environment(nvml.built(folder / "nvml"))
    project = copy(folder / "project", SAMPLED)
    project.path, project.variables = (STANDINS,), {"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"]}
    return Built(project, "all")


@pytest.fixture
def sampled(build: Built) -> Project:
    return build.restored()


def rows(project: Project, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(project.read(path))))


@pytest.mark.slow
def test_samples_of_the_window_and_how_they_came_about(sampled: Project) -> None:
    table, sidecar = rows(sampled, f"{CELL}.sample.csv"), json.loads(sampled.read(f"{CELL}.sample.csv.json"))
    assert sidecar["gaps"] == [] and len(table) == sidecar["samples"] >= 10
    assert {row["gpu_uuid"] for row in table} == {nvml.UUIDS[0]}
    assert all(0 <= int(row["t_ns"]) <= sidecar["window_wall_ns"] for row in table)
    # The rest of the run is left out.
    assert len(rows(sampled, f"{CELL}.sample-raw.csv")) > len(table)
    assert sidecar["options"] == ["--interval-ms", "1"] and sidecar["interval_reached_ms"] >= 1
    # It has grown until the counter of energy is good enough.
    assert sidecar["cell"]["window"] == 400 <= sidecar["steps"] == len(rows(sampled, f"{CELL}.sample-steps.csv"))
    assert sidecar["window_wall_ns"] >= 5.3e9 and not sidecar["warnings"]
    between = sidecar["command"].index("models.run")
    assert "profzoo.tools.sample.sampler" in sidecar["command"][:between]


@pytest.mark.slow
def test_tables_and_the_page_show_it_by_themselves(sampled: Project) -> None:
    assert undescribed(sampled.root / "results") == []
    (cell,) = rows(sampled, "results/tables/cells.csv")
    assert 100 <= float(cell["power_w"]) <= 300 and float(cell["sm_clock_hz"]) == 1.98e9
    sidecar = json.loads(sampled.read(f"{CELL}.sample.csv.json"))
    step_s = sidecar["window_wall_ns"] / sidecar["steps"] / 1e9
    assert float(cell["step_energy_power_j"]) == pytest.approx(float(cell["power_w"]) * step_s)
    item_j = float(cell["step_energy_counter_j"]) / sidecar["items"] * sidecar["steps"]
    assert float(cell["item_energy_counter_j"]) == pytest.approx(item_j) and float(cell["energy_error"]) <= 0.02
    (agreement,) = rows(sampled, "results/tables/agreement.csv")
    assert float(agreement["sample_slowdown"]) > 0
    page = sampled.read("results/report.html")
    assert f"{float(cell['power_w']):,.0f} W" in page and "1,980 MHz" in page and "slowdown, sample" in page


@pytest.mark.slow
def test_what_samples_are_made_of(sampled: Project) -> None:
    assert sampled.dry("all") == []
    assert rules(sampled.dry("all", "--config", "sample={window: 400, interval_ms: 2}")) >= {"profile_sample"}
    sampled.replace("profzoo/tools/sample/sampler.py", "Samples the GPUs", "Samples all GPUs")
    assert rules(sampled.dry("all")) >= {"profile_sample", "export_sample", "tabulate"}
    assert "time_training" not in rules(sampled.dry("all"))


@pytest.mark.slow
def test_what_exports_samples_collects_none_again(sampled: Project) -> None:
    sampled.replace("profzoo/tools/sample/tables.py", "in base units", "in units")
    assert {"export_sample", "tabulate"} <= (again := rules(sampled.dry("all")))
    assert not again & {"profile_sample", "time_training"}


@pytest.mark.slow
def test_too_short_a_window_says_so_and_leaves_the_table_without(sampled: Project) -> None:
    # What pretends to be a GPU does so for processes that start by themselves.
    short = ("--config", "repeats=2", "fork=false", "sample={window: 2, interval_ms: 1000}")
    ran = sampled.snakemake("results/tables/cells.csv", *short)
    # Each process has a window of its own.
    sidecar = json.loads(sampled.read(f"{CELL}.sample.csv.json"))
    first, second = sidecar["processes"]
    assert first["window_began_ns"] + first["window_wall_ns"] < second["window_began_ns"]
    (line,) = said(ran)
    assert "holds" in line and "raise sample.window" in line
    assert "power_w" not in rows(sampled, "results/tables/cells.csv")[0]


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_what_refuses_ends_in_one_line(build: Built, tmp_path: Path) -> None:
    project = build.restored()
    (line,) = said(project.snakemake(f"{CELL}.sample.csv", "--config", "device=cpu"))
    assert "the cell ran on the CPU, of whose power and energy NVML knows nothing" in line
    before = project.read(f"{CELL}.sample-raw.csv")
    refusing = replace(project, variables={**project.variables, "STANDIN_NVML": "mismatched"})
    given = ("--config", "variables=STANDIN_NVML", "--forcerun", "profile_sample")
    (line,) = said(refusing.snakemake(f"{CELL}.sample.csv", *given, ok=False))
    assert "restart the machine" in line and line.endswith("train.sample.log)")
    # What was measured before stays.
    assert project.read(f"{CELL}.sample-raw.csv") == before
