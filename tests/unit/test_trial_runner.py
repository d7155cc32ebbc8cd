"""The order of trials, on simulated cells; and trials of real processes that say what they are told to."""

import json
import math
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profzoo.experiments import trial_runner
from profzoo.experiments.trial_runner import BASE, Names, plan_rounds
from profzoo.io import csv_tables as reading
from profzoo.records import import_graph
from profzoo.tools.time.tables import REPEATED
from tests import slow

Speeds = dict[Names, float | None]


def played(
    speeds: Speeds, candidates: list[str], repeats: int, drift: float = 0.0, noise: float = 0.0, seed: int = 0,
    words: dict[str, list[str]] | None = None, gone: Callable[[Names, int], bool] = lambda names, count: False,
) -> tuple[list[Names], Names]:  # fmt: skip
    """What is tried, in order, and chosen, where a step takes so long; together, settings multiply.

    drift: what each process takes more than the one before; words: of settings that are not each a key of its own; gone:
    whether settings fail from then on that they ran so often.
    """

    def speed(names: Names) -> float | None:
        alone = [speeds[(name,)] for name in names]
        if names in speeds or not names:
            return speeds.get(names, 1.0)
        return None if None in alone else math.prod(one for one in alone if one is not None)

    order, chance = list[Names](), random.Random(seed)
    going = plan_rounds({name: (words or {}).get(name, [f"{name}=true"]) for name in candidates}, repeats)
    these = next(going)
    while True:
        took: Speeds = {}
        for names in these:
            one = None if gone(names, order.count(names)) else speed(names)
            took[names] = one and one * 1e6 * (1 + drift) ** len(order) * math.exp(chance.gauss(0, noise))
            order.append(names)
        try:
            these = going.send(took)
        except StopIteration as end:
            return order, end.value


def test_what_helps_is_repeated_and_put_together() -> None:
    order, chosen = played({("a",): 0.9, ("b",): 1.3, ("c",): 0.7, ("d",): None}, ["a", "b", "c", "d"], 3)
    assert chosen == ("c", "a")
    # Every round has the cell as it is, and every second one is backwards.
    assert order[:5] == [BASE, ("a",), ("b",), ("c",), ("d",)] and order[5:9] == [("c",), ("b",), ("a",), BASE]
    assert order.count(("b",)) == 2 and order.count(("d",)) == 1
    assert order.count(("a",)) == order.count(("c", "a")) == 3
    # What is put together runs beside what was best before.
    assert order[12:] == [("c", "a"), ("c",), BASE, BASE, ("c",), ("c", "a"), ("c", "a"), ("c",), BASE]


def test_what_does_not_help_together_is_left_out() -> None:
    order, chosen = played({("a",): 0.8, ("b",): 0.9, ("a", "b"): 0.79, ("c",): 1.0}, ["b", "a", "c"], 2)
    assert chosen == ("a",) and order.count(("a", "b")) == 1 and ("a", "c") not in order
    # What cannot be combined is left out as well.
    order, chosen = played({("a",): 0.8, ("b",): 0.9, ("a", "b"): None}, ["a", "b"], 2)
    assert chosen == ("a",) and order.count(("a", "b")) == 1


@pytest.mark.parametrize("speed", [1.0, 0.99, 2.0])
def test_nothing_is_chosen_where_nothing_helps(speed: float) -> None:
    assert played({("a",): speed}, ["a"], 3)[1] == BASE
    assert played({}, [], 3) == ([BASE] * 3, BASE)


def test_the_best_of_many_is_found() -> None:
    chance = random.Random(1)
    for _ in range(50):
        speeds: Speeds = {
            (name,): chance.choice([None, *(chance.uniform(0.3, 1.5) for _ in range(4))]) for name in "abcdef"
        }
        order, chosen = played(speeds, list("abcdef"), 3)
        helping = {names[0] for names, speed in speeds.items() if speed is not None and speed < 0.98}
        assert set(chosen) == helping
        assert all(order.count((name,)) >= 3 for name in helping)


@pytest.mark.parametrize("drift", [-0.005, 0.0, 0.005])
@pytest.mark.parametrize(("both", "right"), [(0.8, ("a",)), (0.72, ("a", "b"))])
def test_a_drift_chooses_nothing_and_rejects_nothing(drift: float, both: float, right: Names) -> None:
    speeds: Speeds = {**{(name,): 1.0 for name in "cdefgh"}, ("a",): 0.8, ("b",): 0.9, ("a", "b"): both}
    found = [played(speeds, list("cdaefbgh"), 3, drift, 0.005, seed)[1] for seed in range(40)]
    assert found.count(right) >= 37
    # Nor where nothing helps.
    assert played({(name,): 1.0 for name in "abcdefghij"}, list("abcdefghij"), 3, drift)[1] == BASE


def test_what_fails_when_it_is_repeated_is_not_chosen() -> None:
    speeds: Speeds = {("a",): 0.8, ("b",): 0.9}
    found = played(speeds, ["a", "b"], 3, gone=lambda names, count: names == ("a", "b") and count == 1)
    assert found[1] == ("a",) and found[0].count(("a", "b")) == 2
    # Nor what was best alone and fails beside it, of which the next best is left.
    assert played(speeds, ["a", "b"], 3, gone=lambda names, count: "a" in names and count == 3)[1] == ("b",)
    assert played(speeds, ["a"], 3, gone=lambda names, count: "a" in names and count == 2)[1] == BASE


def test_what_was_tried_under_its_own_name_is_not_put_together_again() -> None:
    words = {"graph": ["graph=true"], "bf16": ["precision=bf16"], "graph+bf16": ["graph=true", "precision=bf16"]}
    for both, best in ((0.3, ("graph+bf16",)), (0.9, ("graph",))):
        speeds = {("graph",): 0.5, ("bf16",): 0.95, ("graph+bf16",): both}
        order, chosen = played(speeds, list(words), 2, words=words)
        assert chosen == best and not any(len(names) > 1 for names in order)


PROGRAM = """
import json, sys
def prepare(words):
    sys.modules["prepared"] = sys
def main(words):
    given, settings = dict(zip(words, words[1:])), dict(word.split("=") for word in words if "=" in word)
    if settings.get("graph") == "true":
        sys.exit("graph: it cannot be captured")
    step = 1000 if settings.get("precision") == "bf16" else 2000
    steps = "".join(f"{n},{step},{step},1,\\n" for n in range(4))
    open(given["--steps"], "w").write("step,wall_ns,gpu_ns,items,peak_memory_bytes\\n" + steps)
    facts = {"step_ns": step, "items": 4, "batch": int(settings["batch"]), "device": "CPU", "torch": "2", "parameters": 1}
    json.dump(facts, open(given["--facts"], "w"))
    return 0
if __name__ == "__main__":
    main(sys.argv)
"""


GRAPH = {"graph": {"gain": 2.0, "verdict": ""}}


def tried(
    folder: Path, budget: float = 60.0, at_once: int = 1, *more: str, program: str = PROGRAM, expected: dict = GRAPH,
    repeats: int | None = 2, words: tuple[str, ...] = (), run: Sequence[str] = (),
) -> dict:  # fmt: skip
    """The facts of trials of two settings on a cell that PROGRAM stands for."""
    (folder / "program.py").write_text(program)
    (folder / "expected.json").write_text(json.dumps({"cells": {"lstm train": expected}}))
    cell = {"name": "lstm train", "program": [sys.executable, *(run or [str(folder / "program.py")])], "load": [],
            "words": ["lstm", "train", "batch=8", "precision=fp32", *words],
            "candidates": {"bf16": ["precision=bf16"], "graph": ["graph=true"]}}  # fmt: skip
    given = ["--cell", json.dumps(cell), "--expected", str(folder / "expected.json")]
    given += ["--repeats", str(repeats)] if repeats else []
    files = ["--steps", str(folder / "steps.csv"), "--facts", str(folder / "facts.json")]
    assert trial_runner.main([*given, "--budget", str(budget), "--at-once", str(at_once), *more, *files]) == 0
    return json.loads((folder / "facts.json").read_text())


@pytest.mark.parametrize(("at_once", "repeats"), [(4, None), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_trials_of_processes_leave_steps_facts_and_reasons(tmp_path: Path, at_once: int, repeats: int | None) -> None:
    """As often as asked for, or until all is decided."""
    facts = tried(tmp_path, at_once=at_once, repeats=repeats)
    assert not any("forked" in one for one in facts["processes"])
    assert facts["tried"] == ["graph", "bf16"] and facts["chosen"] == "bf16" and facts["ended"] == "all"
    assert facts["failed"] == {"graph": "graph: it cannot be captured"}
    assert [(one["side"], one["round"], one["step_ns"]) for one in facts["processes"]] == [
        ("", 0, 2000), ("bf16", 0, 1000), ("bf16", 1, 1000), ("", 1, 2000),
    ]  # fmt: skip
    table = reading.read(tmp_path / "steps.csv", REPEATED)
    assert len(table) == facts["steps"] == 16 and table["side"].tolist()[4:12] == ["bf16"] * 8


def test_on_a_cpu_each_setting_runs_at_once_with_the_cell_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later pairs run on a machine that is half as fast, which leaves their ratios as they are."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    slower = PROGRAM.replace("    steps =", '    step *= 1 + ("/2-" in given["--steps"])\n    steps =')
    slower = slower.replace("sys.exit", "json or sys.exit")
    cpu = ("device=cpu", "workers=0", "threads=1")
    facts = tried(tmp_path, program=slower, words=cpu, expected={"bf16": {"gain": 1.5, "rank": 1}})
    found = {(one["round"], one["side"], one["beside"]) for one in facts["processes"]}
    # The second round is backwards.
    settings = enumerate(("bf16", "graph", "graph", "bf16"))
    assert found == {(number, side, 2) for number, name in settings for side in ("", name)}
    assert facts["chosen"] == "bf16" and facts["spread"]["processes"] == 0


@pytest.mark.parametrize(("spread", "later"), slow.first([(0, 8), (30, 20)]))
def test_later_rounds_time_only_as_many_steps_as_the_spread_of_the_first_asks_for(
    tmp_path: Path, spread: int, later: int
) -> None:
    """Steps of the program alternate between 2000 ns and some more."""
    steps = f'"".join(f"{{n}},{{step + n % 2 * {spread}}},,1,\\n" for n in range(int(settings["window"])))'
    program = PROGRAM.replace('"".join(f"{n},{step},{step},1,\\n" for n in range(4))', steps)
    assert program != PROGRAM
    facts = tried(tmp_path, program=program, words=("window=20",))
    assert facts["steps"] == 2 * 20 + 2 * later


def test_a_plan_that_the_panel_lacks_is_tried_in_its_place(tmp_path: Path) -> None:
    """Two plans come first, in the order of their ranks, though the second gains more; the last gains nothing."""
    plans = {"precision=bf16 workers=2": {"gain": 1.5, "rank": 1, "words": ["precision=bf16", "workers=2"]},
             "bf16": {"gain": 1.9, "rank": 2, "words": ["precision=bf16"]},
             "workers=2": {"gain": 0.9, "rank": 3, "words": ["workers=2"]}}  # fmt: skip
    last = {"graph": {"gain": None, "words": ["graph=true"], "rank": 4, "not_possible": "it waits for the GPU"}}
    assert tried(tmp_path, 0.0, expected=last)["tried"] == ["bf16", "graph"]
    facts = tried(tmp_path, expected=plans)
    assert facts["tried"] == ["precision=bf16 workers=2", "bf16", "graph"]
    assert facts["words"]["precision=bf16 workers=2"] == ["precision=bf16", "workers=2"]
    assert {one["side"] for one in facts["processes"]} == {"", "precision=bf16 workers=2", "bf16"}


def test_a_plan_that_fails_leaves_what_works_of_it_and_what_failed(tmp_path: Path) -> None:
    """Of its three settings a graph fails, in a later trial as well, where nothing with it comes first again."""
    words = ["graph=true", "precision=bf16", "workers=2"]
    plans = {"all": {"gain": 9.0, "rank": 1, "words": words}}
    facts = tried(tmp_path, expected=plans, repeats=None, at_once=4)
    why = "graph: it cannot be captured"
    assert facts["failed"] == {"all": why, "graph": why} and facts["ended"] == "all"
    assert facts["words"] | {"": []} == {
        "all": words, "bf16": words[1:2], "graph": words[:1], "workers=2": words[2:], "": [],
        "precision=bf16 workers=2": words[1:],
    }  # fmt: skip
    sides = [one["side"] for one in facts["processes"]]
    assert (sides.count("workers=2"), sides.count("precision=bf16 workers=2")) == (1, 2)
    # Without time for it, what is known stays known.
    known = {"graph": {"gain": None, "words": words[:1], "not_possible": f"it failed: {why}", "failed": why}}
    later = tried(tmp_path, 0.0, 4, expected={"all": {**plans["all"], "gain": None}, **known})
    assert later["tried"] == ["bf16", "graph"] and later["failed"] == {"graph": why}
    works = PROGRAM.replace('settings.get("graph") == "true"', "False")
    assert tried(tmp_path, at_once=4, program=works, expected=known)["failed"] == {}


def test_so_many_are_tried_as_are_asked_for_until_the_budget_ends(tmp_path: Path) -> None:
    facts = tried(tmp_path, 0.0, 4, "--most", "1")
    assert facts["tried"] == ["graph"] and facts["ended"] == "budget" and facts["chosen"] == ""
    assert [one["side"] for one in facts["processes"]] == [""]


def test_a_cell_that_fails_as_it_is_ends_its_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"name": "m train", "program": [sys.executable, "-c", "raise SystemExit('no memory')"], "load": [],
             "words": [], "candidates": {}}  # fmt: skip
    files = ["--steps", str(tmp_path / "s.csv"), "--facts", str(tmp_path / "f.json")]
    assert trial_runner.main(["--cell", json.dumps(words), "--repeats", "2", "--budget", "9", *files]) == 2
    assert "profzoo: the unchanged cell failed: no memory" in capsys.readouterr().err


def test_a_cell_that_fails_as_it_is_later_leaves_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = "import pathlib\nran = pathlib.Path(__file__ + '.ran')\nif 'precision=fp32' in sys.argv[1:]:\n"
    later += "    ran.exists() and sys.exit('no memory')\n    ran.touch()\n"
    facts = tried(tmp_path, program=PROGRAM.replace("def prepare", later + "def prepare"))
    assert facts["ended"] == "failed" and facts["chosen"] == "" and facts["failed"][""] == "no memory"
    assert [one["side"] for one in facts["processes"]] == ["", "bf16", "bf16"]
    assert "profzoo: trials ended because the unchanged cell failed: no memory" in capsys.readouterr().err


def test_trials_of_forked_processes_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{import_graph.PROJECT}")
    prepared = PROGRAM.replace("    given,", '    assert "prepared" in sys.modules\n    given,')
    facts = tried(tmp_path, 60.0, 2, "--fork", program=prepared, repeats=None, run=["-m", "program"])
    assert facts["chosen"] == "bf16" and facts["failed"] == {"graph": "graph: it cannot be captured"}
    assert [(one["side"], one["forked"]) for one in facts["processes"]] == [
        ("", True), ("bf16", True), ("bf16", True), ("", True),
    ]  # fmt: skip
