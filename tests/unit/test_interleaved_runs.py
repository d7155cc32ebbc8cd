"""rounds: processes in turn start side by side, and only one of them is ever at work."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from profzoo.experiments import interleaved_runs
from tests.unit.test_gpu_slots import PROJECT

# What a measured process does: it starts, waits for its turn, works, and leaves its steps and facts.
PROGRAM = """
import argparse, json, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from profzoo.machine import gpu_turns
parser = argparse.ArgumentParser()
for name in ("project", "log", "name", "code"):
    parser.add_argument(name)
for name in ("--steps", "--facts", "--memory"):
    parser.add_argument(name, type=Path)
given = parser.parse_args()
def say(what):
    with open(given.log, "a") as file:
        file.write(f"{given.name} {what}\\n")
say("started")
if given.code == "early":
    sys.exit(5)
gpu_turns.wait_for_turn()
gpu_turns.wait_for_turn()
say("at work")
time.sleep(0.2)
from profzoo.machine import time_slicing
if worker := time_slicing.find_worker():
    for _ in range(given.code.count("+")):
        worker.rest()
        say("at work again")
        time.sleep(0.05)
say("done")
if given.code == "killed":
    import os
    os.kill(os.getpid(), 9)
given.steps.write_text("step,gpu_ns\\n0,1\\n")
given.facts.write_text(json.dumps({"batch": 1, "stock": bool(given.memory)}))
sys.exit(int(given.code.strip("+")))
"""


def ran(folder: Path, names: Sequence[str], at_once: int, *more: str, **codes: str) -> tuple[int, list[str]]:
    """The exit code of these processes in turn, and what they did, in order."""
    log = folder / "log"
    words = {
        name: [sys.executable, "-c", PROGRAM, str(PROJECT), str(log), name, codes.get(name, "0")] for name in names
    }
    given = ["--rounds", json.dumps([(name, words[name]) for name in names]), "--at-once", str(at_once)]
    files = ["--steps", str(folder / "steps.csv"), "--facts", str(folder / "facts.json")]
    return interleaved_runs.main(
        [*given, *files, *more, "--memory", str(folder / "memory.csv")]
    ), log.read_text().splitlines()


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})


def test_those_that_start_side_by_side_work_one_after_the_other(tmp_path: Path) -> None:
    code, did = ran(tmp_path, "abcde", 4)
    assert code == 0
    # Of four that may, three have a core.
    assert set(did[:3]) == {"a started", "b started", "c started"}
    at_work = [f"{name} {what}" for name in "abc" for what in ("at work", "done")]
    assert did[3:9] == at_work and set(did[9:11]) == {"d started", "e started"}
    assert did[11:] == [f"{name} {what}" for name in "de" for what in ("at work", "done")]
    assert (tmp_path / "steps.csv").read_text().split() == [
        "side,process,step,gpu_ns",
        *(f"{s},{i},0,1" for i, s in enumerate("abcde")),
    ]
    # Only the first of them takes stock of memory.
    processes = json.loads((tmp_path / "facts.json").read_text())["processes"]
    assert [one["stock"] for one in processes] == [True, False, False, False, False]


def test_what_may_not_start_ahead_starts_in_its_turn(tmp_path: Path) -> None:
    code, did = ran(tmp_path, "ab", 1)
    assert (code, did) == (0, [f"{name} {what}" for name in "ab" for what in ("started", "at work", "done")])


@pytest.mark.parametrize(("how", "code"), [("3", 3), ("early", 5), ("killed", 137)])
def test_the_first_that_fails_ends_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, code: int
) -> None:
    found, did = ran(tmp_path, "abc", 3, b=how)
    assert found == code and "process 2 of 3, of b, failed" in capfd.readouterr().err
    assert "a done" in did and "c started" in did and "c at work" not in did
    assert not (tmp_path / "steps.csv").exists()


def test_processes_of_a_round_work_by_shifts_one_after_the_other(tmp_path: Path) -> None:
    code, did = ran(tmp_path, "abcd", 1, "--by-shifts", "2", a="0++", b="0+++", c="0", d="0+")
    assert code == 0
    assert set(did[:2]) == {"a started", "b started"} and set(did[11:13]) == {"c started", "d started"}
    assert did[2:11] == [
        *("a at work", "b at work", "a at work again", "b at work again", "a at work again", "a done"),
        *("b at work again", "b at work again", "b done"),
    ]
    assert did[13:] == ["c at work", "c done", "d at work", "d at work again", "d done"]
    processes = json.loads((tmp_path / "facts.json").read_text())["processes"]
    assert [one["round"] for one in processes] == [0, 0, 1, 1]


@pytest.mark.parametrize(("how", "code"), [("3", 3), ("early", 5), ("killed", 137)])
def test_one_that_fails_among_shifts_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, code: int
) -> None:
    found, _ = ran(tmp_path, "ab", 1, "--by-shifts", "2", a="0+", b=how)
    assert found == code and "process 2 of 2, of b, failed" in capfd.readouterr().err


def test_rounds_start_ahead_and_work_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    code, did = ran(tmp_path, "abcd", 4, "--by-shifts", "2", a="0+", b="0", c="0", d="0")
    assert code == 0 and set(did[:4]) == {f"{name} started" for name in "abcd"}
    of_a_round = ["a at work", "b at work", "b done", "a at work again", "a done"]
    assert did[4:] == [*of_a_round, "c at work", "c done", "d at work", "d done"]


@pytest.mark.parametrize(("more", "first"), [([], True), (["--baseline", "b"], False)])
def test_facts_of_all_are_those_of_the_baselines_first_process(tmp_path: Path, more: list[str], first: bool) -> None:
    """Only the very first process takes stock of memory, which tells whose facts these are."""
    code, _ = ran(tmp_path, "ab", 1, *more)
    assert code == 0 and json.loads((tmp_path / "facts.json").read_text())["stock"] == first


# A process whose steps take what its words say, with a spread of its own.
TIMED = """
import json, random, sys
given = dict(zip(sys.argv, sys.argv[1:]))
step = float(sys.argv[1]) * random.gauss(1, float(sys.argv[2]))
rows = "".join(f"{number},{step},,1,\\n" for number in range(8))
open(given["--steps"], "w").write("step,wall_ns,gpu_ns,items,peak_memory_bytes\\n" + rows)
json.dump({"batch": int(sys.argv[3]), "items": 8}, open(given["--facts"], "w"))
"""


def timed(folder: Path, sides: dict[str, tuple[float, float, int]], most: int, budget_s: float = 60.0) -> dict:
    """Facts of rounds of these sides: step in ns, spread and batch; at most so many rounds, in at most so many seconds."""
    words = {side: [sys.executable, "-c", TIMED, *map(str, given)] for side, given in sides.items()}
    order = [*sides, *reversed(sides)] if len(sides) > 1 else [*sides]
    rule = {"margin": 0.02, "comparisons": 1, "budget_s": budget_s}
    files = ["--steps", str(folder / "steps.csv"), "--facts", str(folder / "facts.json")]
    until = ["--most", str(most), "--until", json.dumps(rule), "--baseline", next(iter(sides))]
    assert interleaved_runs.main(["--rounds", json.dumps([(side, words[side]) for side in order]), *files, *until]) == 0
    return json.loads((folder / "facts.json").read_text())


def test_rounds_end_once_all_sides_are_decided(tmp_path: Path) -> None:
    # Per sample, the candidate is half as fast, though its step takes as long.
    facts = timed(tmp_path, {"a": (1e6, 0.001, 4), "b": (1e6, 0.001, 2), "c": (3e6, 0.001, 4)}, 9)
    assert facts["ended"] == "decided" and facts["round_s"] > 0
    ran = [(one["side"], one["round"]) for one in facts["processes"]]
    assert ran[:6] == [("a", 0), ("b", 0), ("c", 0), ("c", 1), ("b", 1), ("a", 1)] and len(ran) <= 12


def test_rounds_end_with_the_most_the_budget_or_no_hope(tmp_path: Path) -> None:
    noisy = {"a": (1e6, 0.2, 1), "b": (1e6, 0.2, 1)}
    facts = timed(tmp_path, noisy, 2)
    assert facts["ended"] == "most" and len(facts["processes"]) == 4
    facts = timed(tmp_path, noisy, 9, 0.0)
    assert facts["ended"] == "budget" and len(facts["processes"]) == 2
    # Hundreds of rounds do not fit into seconds; how many it takes to see that is a matter of chance.
    facts = timed(tmp_path, noisy, 99, 20.0)
    assert facts["ended"] == "hopeless" and 12 <= len(facts["processes"]) < 2 * 99


def test_processes_of_one_side_end_once_their_mean_is_known(tmp_path: Path) -> None:
    facts = timed(tmp_path, {"": (1e6, 0.0005, 1)}, 9)
    assert facts["ended"] == "decided" and 2 <= len(facts["processes"]) <= 5
    assert [one["round"] for one in facts["processes"]] == list(range(len(facts["processes"])))
