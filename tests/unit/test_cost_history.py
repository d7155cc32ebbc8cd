"""Plans learn what sets cost on a GPU from those that were carried out there."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.cell.plan_types import Plan
from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import cost_history, cost_probe, costs, run_planning
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

OWN = {"metrics": ["gpu__time_duration.sum", "smsp__inst_executed.sum"]}
OPTIONS = config.normalise_config({"ncu": {"sets": {"own": OWN}, "launches": "all"}})["ncu"]
WINDOW, START = 400, 6.0


def collect(results: Path, cell: str, name: str, each_s: float, gpu: str = "H100", probe: Sequence[str] = ()) -> dict:
    """Plan a set of a cell as the workflow does, and leave the sidecar of a run whose launches took so long."""
    folder = results / cell
    folder.mkdir(parents=True, exist_ok=True)
    census = pd.DataFrame({"id": range(WINDOW), "mangled": "k", "range": "", GPU_TIME: 1e4, "launches": WINDOW})
    census = census.assign(kernel="k", function="k", stream=7, **dict.fromkeys(KEYS[1:], 1))
    census.to_csv(folder / "train.ncu.launch.csv", index=False)
    wall = START + WINDOW * costs.load_costs()["sets"][ncu.CENSUS]["seconds"]
    (folder / "train.launch.ncu-rep.json").write_text(json.dumps({"wall_s": wall, "gpu": gpu}))
    paths = [str(folder / f"train.{end}") for end in ("ncu.launch.csv", "launch.ncu-rep.json", f"{name}.plan.json")]
    run_planning.main(OPTIONS, name, *paths, print, probe)
    plan = json.loads(Path(paths[2]).read_text())
    facts = {"plan": plan, "gpu": gpu, "options": ncu.options(OPTIONS, name), "wall_s": START + WINDOW * each_s}
    (folder / f"train.{name}.ncu-rep.json").write_text(json.dumps(facts))
    return plan


def off(plan: dict, each_s: float) -> float:
    """By how much of what it takes a plan is off."""
    return abs(plan["estimate_s"] / (START + WINDOW * each_s) - 1)


def test_a_plan_has_the_keys_of_its_type(tmp_path: Path) -> None:
    planned = collect(tmp_path, "a", "own", 0.04)
    assert Plan.__required_keys__ <= set(planned) <= Plan.__required_keys__ | Plan.__optional_keys__


def test_a_set_is_planned_by_what_it_took(tmp_path: Path) -> None:
    first, second, third = (collect(tmp_path, cell, "own", 0.04) for cell in ("a", "b", "c"))
    assert off(first, 0.04) > 1 and first["basis"] == costs.PARTS and first["outcomes"] == 0
    assert off(second, 0.04) < 0.01 and second["basis"] == cost_history.HERE
    # What was planned by what was learned says no less.
    assert off(third, 0.04) < 0.01 and third["shipped_s"] == first["shipped_s"] == first["launch_s"]


def test_a_set_that_never_ran_is_planned_by_what_others_took(tmp_path: Path) -> None:
    """On a GPU on which launches take a third of what they took where the shipped costs were measured."""
    shipped = costs.load_costs()["sets"]["survey"]["seconds"]
    collect(tmp_path, "a", "roofline", costs.load_costs()["sets"]["roofline"]["seconds"] / 3)
    plan = collect(tmp_path, "b", "survey", shipped / 3)
    assert off(plan, shipped / 3) < 0.01 and plan["basis"] == costs.MEASURED


def test_another_gpu_says_nothing(tmp_path: Path) -> None:
    collect(tmp_path, "a", "own", 0.04, gpu="A100")
    assert collect(tmp_path, "b", "own", 0.04)["outcomes"] == 0


def probed(folder: Path, recording: Callable, passes: int = 3, gpu: str = "H100", launch_s: float = 0.04) -> list[str]:
    """The page and the sidecar of a probe on a GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    heading, units, *rows = list(csv.reader(recording("ncu/launch.raw.mangled.csv").open()))
    at = heading.index(cost_probe.PASSES)
    rows = [[*row[:at], str(passes), *row[at + 1 :]] for row in rows[:8]]
    with (folder / "gpu.own.probe.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([heading, units, *rows])
    (folder / "gpu.own.ncu-rep.json").write_text(json.dumps({"gpu": gpu, "launch_s": launch_s}))
    return [str(folder / f"gpu.own.{end}") for end in ("probe.csv", "ncu-rep.json")]


def test_a_set_that_nobody_knows_is_planned_by_a_probe(tmp_path: Path, recording: Callable) -> None:
    probe = probed(tmp_path / "peaks", recording)
    first, second = (collect(tmp_path, cell, "own", 0.05, probe=probe) for cell in ("a", "b"))
    assert (first["basis"], first["passes"], first["launch_s"]) == (costs.PROBED, 3, 0.04)
    assert off(first, 0.05) < 0.25 and run_planning.describe_plan(first).partition("replay: ")[2].startswith("about")
    # What it took then says more, but for the passes.
    assert second["basis"] == cost_history.HERE and second["passes"] == 3 and off(second, 0.05) < 0.01


def test_a_probe_of_another_gpu_says_nothing(tmp_path: Path, recording: Callable) -> None:
    probe = probed(tmp_path / "peaks", recording, gpu="A100")
    assert collect(tmp_path, "a", "own", 0.05, probe=probe)["basis"] == costs.PARTS


def test_a_probe_that_does_not_say_its_passes_is_refused(tmp_path: Path, recording: Callable) -> None:
    page, sidecar = probed(tmp_path / "peaks", recording)
    Path(page).write_text(Path(page).read_text().replace(f'"{cost_probe.PASSES}"', '"profiler__other"'))
    with pytest.raises(DataError, match="does not say in how many passes launches were profiled"):
        cost_probe.read_probe_cost(page, sidecar, "H100")


def test_which_sets_nobody_knows() -> None:
    known, shipped = costs.load_costs(), config.normalise_config({})["ncu"]["sets"]
    assert [name for name, chosen in shipped.items() if costs.lacks_cost(chosen, known)] == []
    assert costs.lacks_cost(OWN, known) and costs.lacks_cost({"sections": ["NewSection"]}, known)
    assert costs.lacks_cost({"set": "of another version"}, known)
    assert not costs.lacks_cost({"sections": ["SpeedOfLight"], "metrics": ["dram__bytes_read.sum"]}, known)


@pytest.mark.parametrize("broken", ["", "{}", '{"gpu": "H100", "plan": {"replay": "kernel", "launches": 3}}', "[1]"])
def test_a_sidecar_that_cannot_be_read_is_passed_over(tmp_path: Path, broken: str) -> None:
    collect(tmp_path, "a", "own", 0.04)
    (tmp_path / "a/inference.own.ncu-rep.json").write_text(broken)
    assert off(collect(tmp_path, "b", "own", 0.04), 0.04) < 0.01
