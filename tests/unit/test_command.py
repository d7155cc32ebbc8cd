"""collect/command: the command line of every kind of collecting job, from its description alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from profzoo.cell import settings
from profzoo.collect import command_line
from profzoo.config import configuration

FOLDER = Path("results/lstm")
ON_TWO = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
RANKS = ["python", "-m", "profzoo.collect.profile_ranks"]
NSYS = ["nsys", "profile", "--option"]


def job(tool: str, **changes: Any) -> dict[str, Any]:
    config = configuration.normalise_config({"settings": {"lstm": changes}})
    resolved = settings.resolve_cell("lstm", "train", "time" if tool in ("train", "numerics") else tool, config)
    return {"tool": tool, "cell": resolved, "environment": [], "options": ["--option"]}


def made(**names: str) -> dict[str, Path]:
    return {name: FOLDER / file for name, file in {"sidecar": "s.json", **names}.items()}


@pytest.mark.parametrize(
    ("tool", "files", "profiler", "inside", "leaves"),
    [
        ("time", {"steps": "t.csv"}, [], ["--steps", "results/lstm/t.csv"], ["t.csv"]),
        ("train", {"weights": "w.pt"}, [], ["--save", "results/lstm/w.pt"], ["w.pt"]),
        ("numerics", {}, [], ["--numerics"], []),
        (
            "torch", {"operators": "o.csv", "trace": "t.gz"}, [],
            ["--operators", "results/lstm/o.csv", "--trace", "results/lstm/t.gz"], ["o.csv", "t.gz"],
        ),
        ("ncu", {"report": "x.ncu-rep"}, ["ncu", "--planned", "--option", "--export", "results/lstm/x.ncu-rep"], [], ["x.ncu-rep"]),
        (
            "nsys", {"report": "x.nsys-rep", "sqlite": "x.nsys.sqlite"},
            ["nsys", "profile", "--planned", "--option", "--output", "results/lstm/x.nsys-rep"], [], ["x.nsys-rep", "x.sqlite"],
        ),
    ],
)  # fmt: skip
def test_of_one_process(tool: str, files: dict, profiler: list, inside: list, leaves: list) -> None:
    described = job(tool)
    asked = command_line.build_command(described, made(**files), ["--planned"], Path("results/lstm/weights.pt"))
    assert asked.launcher == [] and asked.profiler == profiler
    words = settings.setting_words(described["cell"])
    begins = ["python", "-m", "models.run", *words, "--load", "results/lstm/weights.pt"]
    assert asked.program == [*begins, *inside, "--facts", "results/lstm/s.json"]
    assert [path.name for path in asked.leaves] == leaves


@pytest.mark.parametrize(
    ("tool", "files", "profiler"),
    [
        ("time", {"steps": "t.csv"}, []),
        ("ncu", {"report": "x"}, [*RANKS, "first", "ncu", "--option", "--export", "results/lstm/x", "--"]),
        ("ncu", {"ranks": "r"}, [*RANKS, "all", "ncu", "--option", "--export", "results/lstm/r/%h.%q{RANK}", "--"]),
        ("nsys", {"report": "x", "ranks": "r"}, [*NSYS, "--output", "results/lstm/r/%h.%q{RANK}"]),
    ],
)
def test_of_several_processes(tool: str, files: dict, profiler: list) -> None:
    asked = command_line.build_command(job(tool, gpus=2), made(**files))
    assert asked.launcher == ON_TWO and asked.profiler == profiler


def test_of_several_nodes() -> None:
    asked = command_line.build_command(job("time", gpus=4, nodes=2), made(steps="t.csv"))
    assert asked.launcher == ["python", "-m", "profzoo.collect.multi_node", "2", "4"]


def test_of_a_probe() -> None:
    job = {"tool": "probe", "cell": {"device": "auto"}, "environment": [], "set": "own", "options": ["--metrics", "a"]}
    asked = command_line.build_command(job, made(report="x.ncu-rep"))
    assert asked.tool == "ncu" and asked.leaves == [FOLDER / "x.ncu-rep"]
    assert asked.profiler == ["ncu", "--metrics", "a", "--export", "results/lstm/x.ncu-rep"]
    assert asked.program[:5] == ["python", "-m", "profzoo.calibration.launch_costs", "--device", "auto"]


def test_of_peaks() -> None:
    asked = command_line.build_command(
        {"tool": "peaks", "cell": {"device": "cuda"}, "environment": []}, made(csv="p.csv")
    )
    assert asked.program[2:] == [
        "profzoo.calibration.peaks", "--device", "cuda", "--out", "results/lstm/p.csv", "--facts", "results/lstm/s.json",
    ]  # fmt: skip


def test_sides_in_turn_name_the_baseline_whichever_of_them_begins() -> None:
    """By name the candidate is first, and it runs first as well."""
    described = job("time")
    sides = {"bf16": {**described["cell"], "precision": "bf16"}, "plain": described["cell"]}
    turns = {"sides": sides, "order": ["bf16", "plain", "plain", "bf16"]}
    program = command_line.build_command({**described, **turns}, made(steps="t.csv")).program
    assert program[program.index("--baseline") + 1] == "plain"
    assert [side for side, _ in json.loads(program[program.index("--rounds") + 1])] == turns["order"]
    alone = command_line.build_command({**described, "repeats": 3}, made(steps="t.csv")).program
    assert "--numerics" in program and not {"--baseline", "--numerics"} & {*alone}
