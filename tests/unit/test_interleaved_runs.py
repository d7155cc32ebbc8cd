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
