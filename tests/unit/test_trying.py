"""The order of trials, on simulated cells; and trials of real processes that say what they are told to."""

import json
import math
import random
import sys
from pathlib import Path

import pytest

from profzoo.harness import trying
from profzoo.harness.trying import BASE, Names, course
from profzoo.reading import tables as reading
from profzoo.tools.time.tables import REPEATED


def played(speeds: dict[Names, float | None], candidates: list[str], repeats: int) -> tuple[list[Names], Names]:
    """What is tried, in order, and chosen, where a step takes so long; together, settings multiply."""

    def speed(names: Names) -> float | None:
        alone = [speeds[(name,)] for name in names]
        if names in speeds or not names:
            return speeds.get(names, 1.0)
        return None if None in alone else math.prod(one for one in alone if one is not None)

    order, going = [], course(candidates, repeats)
    _, these = next(going)
    while True:
        order += these
        took = {names: speed(names) for names in these}
        try:
            _, these = going.send({names: None if one is None else one * 1e6 for names, one in took.items()})
        except StopIteration as end:
            return order, end.value


def test_what_helps_is_repeated_and_put_together() -> None:
    order, chosen = played({("a",): 0.9, ("b",): 1.3, ("c",): 0.7, ("d",): None}, ["a", "b", "c", "d"], 3)
    assert chosen == ("c", "a")
    # Every round has the cell as it is, and every second one is backwards.
    assert order[:5] == [BASE, ("a",), ("b",), ("c",), ("d",)] and order[5:9] == [("c",), ("b",), ("a",), BASE]
    assert order.count(("b",)) == 2 and order.count(("d",)) == 1
    assert order.count(("a",)) == order.count(("c",)) == order.count(("c", "a")) == 3


def test_what_does_not_help_together_is_left_out() -> None:
    order, chosen = played({("a",): 0.8, ("b",): 0.9, ("a", "b"): 0.79, ("c",): 1.0}, ["b", "a", "c"], 2)
    assert chosen == ("a",) and order.count(("a", "b")) == 1 and ("a", "c") not in order
    # What cannot be combined is left out as well.
    order, chosen = played({("a",): 0.8, ("b",): 0.9, ("a", "b"): None}, ["a", "b"], 2)
    assert chosen == ("a",) and order.count(("a", "b")) == 1


@pytest.mark.parametrize("speed", [1.0, 1.01, 0.99, 2.0])
def test_nothing_is_chosen_where_nothing_helps(speed: float) -> None:
    assert played({("a",): speed}, ["a"], 3)[1] == BASE
    assert played({}, [], 3) == ([BASE] * 3, BASE)


def test_the_best_of_many_is_found() -> None:
    chance = random.Random(1)
    for _ in range(200):
        speeds = {(name,): chance.choice([None, *(chance.uniform(0.3, 1.5) for _ in range(4))]) for name in "abcdef"}
        order, chosen = played(speeds, list("abcdef"), 3)
        helping = {names[0] for names, speed in speeds.items() if speed is not None and speed < 0.98}
        assert set(chosen) == helping
        assert all(order.count((name,)) == 3 for name in helping)


PROGRAM = """
import json, sys
words = dict(word.split("=") for word in sys.argv[1:] if "=" in word)
if words.get("graph") == "true":
    sys.exit("graph: it cannot be captured")
step = 1000 if words.get("precision") == "bf16" else 2000
given = dict(zip(sys.argv, sys.argv[1:]))
steps = "".join(f"{n},{step},{step},1,\\n" for n in range(4))
open(given["--steps"], "w").write("step,wall_ns,gpu_ns,items,peak_memory_bytes\\n" + steps)
facts = {"step_ns": step, "items": 4, "batch": int(words["batch"]), "device": "CPU", "torch": "2", "parameters": 1}
json.dump(facts, open(given["--facts"], "w"))
"""


def tried(folder: Path, budget: float = 60.0, at_once: int = 1, *more: str) -> dict:
    """The facts of trials of two settings on a cell that PROGRAM stands for."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "expected.json").write_text(
        json.dumps({"cells": {"lstm train": {"graph": {"gain": 2.0, "verdict": ""}}}})
    )
    cell = {"name": "lstm train", "program": [sys.executable, str(folder / "program.py")], "load": [],
            "words": ["lstm", "train", "batch=8", "precision=fp32"],
            "candidates": {"bf16": ["precision=bf16"], "graph": ["graph=true"]}}  # fmt: skip
    words = ["--cell", json.dumps(cell), "--expected", str(folder / "expected.json"), "--repeats", "2"]
    files = ["--steps", str(folder / "steps.csv"), "--facts", str(folder / "facts.json")]
    assert trying.main([*words, "--budget", str(budget), "--at-once", str(at_once), *more, *files]) == 0
    return json.loads((folder / "facts.json").read_text())


@pytest.mark.parametrize("at_once", [1, 4])
def test_trials_of_processes_leave_steps_facts_and_reasons(tmp_path: Path, at_once: int) -> None:
    facts = tried(tmp_path, at_once=at_once)
    assert facts["tried"] == ["graph", "bf16"] and facts["chosen"] == "bf16" and facts["ended"] == "all"
    assert facts["failed"] == {"graph": "graph: it cannot be captured"}
    assert [(one["side"], one["round"], one["step_ns"]) for one in facts["processes"]] == [
        ("", 0, 2000), ("bf16", 0, 1000), ("bf16", 1, 1000), ("", 1, 2000),
    ]  # fmt: skip
    table = reading.read(tmp_path / "steps.csv", REPEATED)
    assert len(table) == facts["steps"] == 16 and table["side"].tolist()[4:12] == ["bf16"] * 8


@pytest.mark.parametrize("at_once", [1, 4])
def test_trials_end_with_their_budget(tmp_path: Path, at_once: int) -> None:
    facts = tried(tmp_path, 0.0, at_once)
    assert facts["ended"] == "budget" and [one["side"] for one in facts["processes"]] == [""]
    assert facts["chosen"] == ""


def test_so_many_are_tried_as_are_asked_for(tmp_path: Path) -> None:
    facts = tried(tmp_path, 60.0, 1, "--most", "1")
    assert facts["tried"] == ["graph"] and {one["side"] for one in facts["processes"]} == {""}


def test_what_was_fastest_when_the_budget_ended_is_chosen(tmp_path: Path) -> None:
    runner = trying.Runner({}, tmp_path)
    runner.sides = ["", "a", "b", "b", ""]
    runner.facts = [{"step_ns": ns, "batch": 2} for ns in (2e6, 1.9e6, 1.5e6, 1.6e6, 2e6)]
    assert trying.fastest(runner) == "b"
    # By the sample, of which there may be twice as many in a batch.
    runner.facts[1] = {"step_ns": 2.2e6, "batch": 4}
    assert trying.fastest(runner) == "a"
    runner.sides, runner.facts = ["", "a"], [{"step_ns": ns, "batch": 2} for ns in (2e6, 1.99e6)]
    assert trying.fastest(runner) == ""


def test_a_cell_that_fails_as_it_is_ends_its_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"name": "m train", "program": [sys.executable, "-c", "raise SystemExit('no memory')"], "load": [],
             "words": [], "candidates": {}}  # fmt: skip
    files = ["--steps", str(tmp_path / "s.csv"), "--facts", str(tmp_path / "f.json")]
    assert trying.main(["--cell", json.dumps(words), "--repeats", "2", "--budget", "9", *files]) == 2
    assert "profzoo: the cell as it is failed: no memory" in capsys.readouterr().err
