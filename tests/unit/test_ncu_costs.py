"""What section sets cost: as measured, by their parts, by a probe, and by what earlier runs took."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.cell.job_types import Plan
from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs, run_planning
from profzoo.tools.ncu.costs import MEASURED, PARTS, PROBED, Cost, Outcome
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Costs in small: two sections of one pass, two of several, one that full lacks; metrics of one pass and of three.
PARTS_OF_SMALL = [
    ("One", 1, 0.25),
    ("Two", 1, 0.5),
    ("Some", 3, 1.0),
    ("Many", 4, 2.0),
    ("Odd", 2, 0.25),
    ("Beyond", 5, 3.0),
]
SMALL = {
    "sets": {"full": {"passes": 9, "seconds": 9.0}},
    "sections": {name: {"passes": passes, "seconds": seconds} for name, passes, seconds in PARTS_OF_SMALL},
    "metrics": [{"match": "^cheap", "passes": 1, "seconds": 0.125}, {"match": "", "passes": 3, "seconds": 0.75}],
    "ncu_sets": {"full": {"passes": 9, "seconds": 4.0, "without": ["Beyond"]}, "basic": ["One", "Some"]},
    "multi_pass_s": 0.5,
}


@pytest.mark.parametrize(
    ("chosen", "passes", "seconds", "basis"),
    [
        # Shipped as it is, whatever its launches.
        ({"set": "full"}, 9, 9.0, MEASURED),
        ({"set": "full", "launches": 3}, 9, 9.0, MEASURED),
        # One pass takes what its dearest part does.
        ({"sections": ["One", "Two"]}, 1, 0.5, PARTS),
        ({"sections": ["One", "Unheard"]}, 1, 0.25, PARTS),
        ({"sections": ["Unheard"]}, 1, 0.0, PARTS),
        # Several share the first pass, and half a second.
        ({"sections": ["Some", "Many"]}, 6, 0.5 + 0.5 + 1.5, PARTS),
        ({"sections": ["One", "Some"]}, 3, 1.0, PARTS),
        ({"sections": ["Odd", "Some"]}, 4, 1.0, PARTS),
        ({"sections": "regex:^(Some|Many)$"}, 6, 2.5, PARTS),
        ({"set": "basic"}, 3, 1.0, PARTS),
        ({"set": "basic", "sections": ["Some", "Many"]}, 6, 2.5, PARTS),
        # No more than all of ncu's.
        ({"sections": ["Some", "Many", "Odd"]}, 7, 2.5, PARTS),
        ({"set": "full", "sections": ["Some"]}, 9, 4.0, PARTS),
        ({"set": "full", "sections": ["Beyond"]}, 13, 0.5 + 3.5 + 2.5, PARTS),
        ({"sections": ["Some", "Many", "Beyond"]}, 10, 5.0, PARTS),
        # Metrics of one kind are collected together; those of several passes are beyond full.
        ({"metrics": ["cheap.a", "cheap.b"]}, 1, 0.125, PARTS),
        ({"metrics": ["dear.a", "dear.b", "cheap.a"]}, 3, 0.75, PARTS),
        ({"metrics": ["dear.a"], "sections": ["Some", "Many", "Odd"]}, 9, 2.75, PARTS),
        ({"metrics": ["cheap.a"], "sections": ["One"]}, 1, 0.25, PARTS),
    ],
)
def test_costs_of_sets(chosen: dict, passes: int, seconds: float, basis: str) -> None:
    assert costs.estimate_cost(chosen, SMALL) == Cost(passes, seconds, basis)


def test_parts_cost_no_more_than_all() -> None:
    """Three parts of 8 passes and 4.5 s, of 6 and 3 s in all."""
    few = SMALL | {"ncu_sets": {"full": {"passes": 6, "seconds": 2.25, "without": ["Beyond"]}}}
    assert costs.estimate_cost({"sections": ["Some", "Many", "Odd"]}, few) == Cost(6, 2.25, PARTS)
    # But for what is beyond it.
    assert costs.estimate_cost({"sections": ["Some", "Many", "Beyond"]}, few) == Cost(10, 5.0, PARTS)
    assert costs.estimate_cost({"sections": ["Some", "Many"], "metrics": ["dear.a"]}, few) == Cost(8, 2.75, PARTS)
    every = {"sections": ["Some", "Many", "Odd"], "metrics": ["cheap.a"]}
    assert costs.estimate_cost(every, few) == Cost(6, 2.25, PARTS)


@pytest.mark.parametrize(
    ("chosen", "unknown"),
    [
        ({"set": "full"}, False),
        ({"sections": ["One"]}, False),
        ({"sections": ["One", "Unheard"]}, True),
        ({"sections": "regex:Unheard"}, False),
        ({"metrics": ["cheap.a"]}, False),
        ({"metrics": ["cheap.a", "dear.a"]}, True),
        ({"set": "basic", "metrics": ["cheap.a"]}, False),
        ({"set": "unheard"}, True),
    ],
)
def test_sets_that_nobody_measured(chosen: dict, unknown: bool) -> None:
    assert costs.lacks_cost(chosen, SMALL) == unknown


ASKED = {"metrics": ["x.sum"]}
SHARED_MEMORY = "launch__shared_mem_per_block_static,launch__shared_mem_per_block_dynamic"
COLLECTED = costs.collection_key(["--metrics", f"x.sum,{SHARED_MEMORY}"])
SHIPPED, PROBE = Cost(6, 0.5), Cost(3, 0.25, PROBED)


@pytest.mark.parametrize(
    ("known", "probed", "price"),
    [
        ([], None, SHIPPED),
        ([], PROBE, PROBE),
        # Two runs of the set, of 10 and 30 launches, took 4 and 16 s.
        ([Outcome(COLLECTED, 10, 1.0, 4.0), Outcome(COLLECTED, 30, 2.0, 16.0)], None, Cost(6, 0.5, costs.HERE)),
        ([Outcome(COLLECTED, 10, 1.0, 4.0), Outcome((), 30, 2.0, 16.0)], PROBE, Cost(3, 0.4, costs.HERE)),
        # Others took 20 s where 5 were expected.
        ([Outcome((), 10, 1.0, 4.0), Outcome((), 30, 4.0, 16.0)], None, Cost(6, 2.0)),
        ([Outcome((), 10, 1.0, 4.0)], PROBE, PROBE),
    ],
)
def test_prices_by_what_is_known(known: list[Outcome], probed: Cost | None, price: Cost) -> None:
    assert costs.estimate_price(ASKED, SHIPPED, known, probed) == price


PLAN = {"replay": "kernel", "launches": 10, "launch_s": 0.5, "shipped_s": 0.25, "estimate_s": 9.0}


@pytest.mark.parametrize(
    ("plan", "wall_s", "took"),
    [
        # Besides 10 launches of 0.5 s, 4 s were planned, of the 10 that it took.
        ({}, 10.0, (2.5, 6.0)),
        ({"shipped_s": None}, 10.0, (5.0, 6.0)),
        ({"replay": "application"}, 10.0, None),
        ({"launches": 0}, 10.0, None),
        ({}, 4.0, None),
        ({}, 3.0, None),
        ({}, 4.5, (2.5, 0.5)),
    ],
)
def test_outcomes_of_plans(tmp_path: Path, plan: dict, wall_s: float, took: tuple | None) -> None:
    said = {name: value for name, value in (PLAN | plan).items() if value is not None}
    facts = {"gpu": "H100", "plan": said, "wall_s": wall_s, "options": ["--set", "full", "--devices", "0"]}
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell/train.full.ncu-rep.json").write_text(json.dumps(facts))
    found = costs.read_history(tmp_path, "H100")
    assert found == ([] if took is None else [Outcome((("--set", "full"),), 10, *took)])
    assert costs.read_history(tmp_path, "A100") == []


UNKNOWN_SET = {"metrics": ["gpu__time_duration.sum", "smsp__inst_executed.sum"]}
OPTIONS = config.normalise_config({"ncu": {"sets": {"own": UNKNOWN_SET}, "launches": "all"}})["ncu"]
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


def test_a_set_is_planned_by_what_it_took(tmp_path: Path) -> None:
    first, second, third = (collect(tmp_path, cell, "own", 0.04) for cell in ("a", "b", "c"))
    assert Plan.__required_keys__ <= set(first) <= Plan.__required_keys__ | Plan.__optional_keys__
    assert off(first, 0.04) > 1 and first["basis"] == PARTS and first["outcomes"] == 0
    assert off(second, 0.04) < 0.01 and second["basis"] == costs.HERE
    # What was planned by what was learned says no less.
    assert off(third, 0.04) < 0.01 and third["shipped_s"] == first["shipped_s"] == first["launch_s"]
    # Of a sidecar that cannot be read nothing is known.
    for broken in ("", "{}", '{"gpu": "H100", "plan": {"replay": "kernel", "launches": 3}}', "[1]"):
        (tmp_path / "a/inference.own.ncu-rep.json").write_text(broken)
        assert off(collect(tmp_path, "b", "own", 0.04), 0.04) < 0.01
    # Another GPU says nothing.
    collect(tmp_path / "other", "a", "own", 0.04, gpu="A100")
    assert collect(tmp_path / "other", "b", "own", 0.04)["outcomes"] == 0


def probed(folder: Path, recording: Callable, passes: int = 3, gpu: str = "H100", launch_s: float = 0.04) -> list[str]:
    """The page and the sidecar of a probe on a GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    heading, units, *rows = list(csv.reader(recording("ncu/launch.raw.mangled.csv").open()))
    at = heading.index(run_planning.PASSES)
    rows = [[*row[:at], str(passes), *row[at + 1 :]] for row in rows[:8]]
    with (folder / "gpu.own.probe.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([heading, units, *rows])
    (folder / "gpu.own.ncu-rep.json").write_text(json.dumps({"gpu": gpu, "launch_s": launch_s}))
    return [str(folder / f"gpu.own.{end}") for end in ("probe.csv", "ncu-rep.json")]


def test_a_set_that_nobody_knows_is_planned_by_a_probe(tmp_path: Path, recording: Callable) -> None:
    probe = probed(tmp_path / "peaks", recording)
    first, second = (collect(tmp_path, cell, "own", 0.05, probe=probe) for cell in ("a", "b"))
    assert (first["basis"], first["passes"], first["launch_s"]) == (PROBED, 3, 0.04)
    assert off(first, 0.05) < 0.25 and run_planning.describe_plan(first).partition("replay: ")[2].startswith("about")
    page, sidecar = map(Path, probe)
    page.write_text(page.read_text().replace(f'"{run_planning.PASSES}"', '"profiler__other"'))
    with pytest.raises(DataError, match="does not say in how many passes launches were profiled"):
        run_planning.read_probe_cost(str(page), str(sidecar), "H100")
    other = probed(tmp_path / "other", recording, gpu="A100")
    assert collect(tmp_path / "results", "a", "own", 0.05, probe=other)["basis"] == PARTS
    # What it took then says more, but for the passes.
    assert second["basis"] == costs.HERE and second["passes"] == 3 and off(second, 0.05) < 0.01


def test_shipped_costs_are_of_the_shipped_sets() -> None:
    known, shipped = costs.load_costs(), config.normalise_config({})["ncu"]["sets"]
    assert [name for name, chosen in shipped.items() if costs.lacks_cost(chosen, known)] == []
    assert set(known["sets"]) <= set(shipped)
    named = {section for chosen in shipped.values() for section in chosen.get("sections", [])}
    listed = {section for of in known["ncu_sets"].values() if isinstance(of, list) for section in of}
    assert named | listed <= set(known["sections"])
    assert costs.estimate_cost(shipped["full"], known) == Cost(38, 1.72)
    two = costs.estimate_cost({"sections": ["SpeedOfLight", "Occupancy"]}, known)
    assert two == Cost(10, pytest.approx(known["sections"]["SpeedOfLight"]["seconds"]), PARTS)
    most, full = (
        costs.estimate_cost({"sections": "regex:^(?!C2C|Nvlink$|PmSampling_)"}, known),
        known["ncu_sets"]["full"],
    )
    assert (most.passes, most.seconds) == (full["passes"], full["seconds"])
