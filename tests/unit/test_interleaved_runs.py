"""interleaved_runs: processes in turn start side by side, only one is ever at work, and what they leave is joined."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profzoo.experiments import interleaved_runs
from profzoo.experiments.forked_runs import ProcessStarter
from tests import slow
from tests.unit.test_gpu_slots import PROJECT

# What a measured process does: it starts, waits for its turn, works, and leaves its steps and facts.
PROGRAM = """
import argparse, json, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from profzoo.machine import gpu_slots
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
gpu_slots.wait_for_turn()
gpu_slots.wait_for_turn()
say("at work")
time.sleep(0.05)
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
    log, code = folder / "log", [sys.executable, "-c", PROGRAM, str(PROJECT)]
    rounds = [(name, [*code, str(log), name, codes.get(name, "0")]) for name in names]
    files = [f"--{name.split('.')[0]}={folder / name}" for name in ("steps.csv", "facts.json", "memory.csv")]
    given = ["--rounds", json.dumps(rounds), "--at-once", str(at_once), *files, *more]
    return interleaved_runs.main(given), log.read_text().splitlines()


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
    header, *rows = (tmp_path / "steps.csv").read_text().split()
    assert header == "side,process,step,gpu_ns" and rows == [f"{side},{i},0,1" for i, side in enumerate("abcde")]
    # Only the first of them takes stock of memory.
    processes = json.loads((tmp_path / "facts.json").read_text())["processes"]
    assert [one["stock"] for one in processes] == [True, False, False, False, False]


@pytest.mark.parametrize(("how", "code"), slow.first([("killed", 137), ("3", 3), ("early", 5)]))
def test_the_first_that_fails_ends_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, code: int
) -> None:
    found, did = ran(tmp_path, "abc", 3, b=how)
    assert found == code and "process 2 of 3, of b, failed" in capfd.readouterr().err
    assert "a done" in did and "c started" in did and "c at work" not in did
    assert not (tmp_path / "steps.csv").exists()
    found, _ = ran(tmp_path, "ab", 1, "--by-shifts", "2", a="0+", b=how)
    assert found == code and "process 2 of 2, of b, failed" in capfd.readouterr().err


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


def test_rounds_start_ahead_and_work_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    code, did = ran(tmp_path, "abcd", 4, "--by-shifts", "2", a="0+", b="0", c="0", d="0")
    assert code == 0 and set(did[:4]) == {f"{name} started" for name in "abcd"}
    of_a_round = ["a at work", "b at work", "b done", "a at work again", "a done"]
    assert did[4:] == [*of_a_round, "c at work", "c done", "d at work", "d done"]


ON_CPU = ["device=cpu", "workers=0"]


def test_processes_of_a_round_run_at_once_on_a_cpu(tmp_path: Path) -> None:
    """They get two of three cores, and each says so to its program."""
    shown = PROGRAM.replace('say("started")', 'import os; say("started beside " + os.environ["PROFZOO_BESIDE"])')
    shown = shown.replace("parser.parse_args()", "parser.parse_known_args()[0]")
    code, log = [sys.executable, "-c", shown, str(PROJECT)], tmp_path / "log"
    rounds = [(name, [*code, str(log), name, "0", *ON_CPU, "threads=null"]) for name in "abba"]
    files = [f"--{name.split('.')[0]}={tmp_path / name}" for name in ("steps.csv", "facts.json")]
    assert interleaved_runs.main(["--rounds", json.dumps(rounds), "--by-shifts", "2", *files]) == 0
    did = log.read_text().splitlines()
    for first in (0, 6):
        assert set(did[first : first + 2]) == {"a started beside 2", "b started beside 2"}
        assert set(did[first + 2 : first + 4]) == {"a at work", "b at work"}
    processes = json.loads((tmp_path / "facts.json").read_text())["processes"]
    assert [(one["side"], one["round"], one["beside"]) for one in processes] == [
        ("a", 0, 2), ("b", 0, 2), ("b", 1, 2), ("a", 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sides", "right"),
    [
        ([[*ON_CPU, "threads=null"]] * 2, True),
        ([["device=auto", "workers=0", "threads=1"]] * 3, True),
        ([[*ON_CPU, "threads=2"]] * 2, False),
        ([[*ON_CPU, "threads=1"], [*ON_CPU, "threads=null"]], False),
        ([["device=cpu", "workers=1", "threads=1"], [*ON_CPU, "threads=1"]], False),
        ([[*ON_CPU, "threads=1"]] * 4, False),
        ([[*ON_CPU, "threads=1"]], False),
        ([["device=cuda", "workers=0", "threads=1"]] * 2, False),
        ([["a"], ["b"]], False),
    ],
)
def test_sides_run_at_once_where_that_leaves_them_as_they_are(sides: list[list[str]], right: bool) -> None:
    """On three cores."""
    assert interleaved_runs.can_run_at_once(sides) == right


def test_cells_are_on_a_cpu_where_no_gpu_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert interleaved_runs.runs_on_cpu([["device=auto"]]) and not interleaved_runs.runs_on_cpu([["device=cuda"]])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert not interleaved_runs.runs_on_cpu([["device=auto"]]) and interleaved_runs.runs_on_cpu([["device=cpu"]])


def test_windows_of_shifts_last_as_much_longer_as_there_are_sides() -> None:
    assert interleaved_runs.lengthen_windows([["a"], ["b"]], 2.0, beside=True)[1] == ["b", "--at-least-s", "2.0"]
    assert interleaved_runs.lengthen_windows([["a"], ["b"]], 2.0, beside=False)[0] == ["a", "--at-least-s", "4.0"]
    assert interleaved_runs.lengthen_windows([["a"]], 0.0, beside=False) == [["a"]]


@pytest.mark.parametrize(("more", "first"), [([], True), (["--baseline", "b"], False)])
def test_what_may_not_start_ahead_starts_in_its_turn_and_facts_are_those_of_the_baselines_first_process(
    tmp_path: Path, more: list[str], first: bool
) -> None:
    """Only the very first process takes stock of memory, which tells whose facts these are."""
    code, did = ran(tmp_path, "ab", 1, *more)
    assert (code, did) == (0, [f"{name} {what}" for name in "ab" for what in ("started", "at work", "done")])
    assert json.loads((tmp_path / "facts.json").read_text())["stock"] == first


# A process whose steps take what its words say, with a spread of its own.
TIMED = """
import json, random, sys
given = dict(zip(sys.argv, sys.argv[1:]))
# By the number of the process, so that each run of the tests draws the same.
random.seed(given["--steps"].rpartition("/")[2])
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
    # Hundreds of rounds do not fit into seconds.
    facts = timed(tmp_path, noisy, 99, 20.0)
    assert facts["ended"] == "hopeless" and 12 <= len(facts["processes"]) < 2 * 99


def test_processes_of_one_side_end_once_their_mean_is_known(tmp_path: Path) -> None:
    facts = timed(tmp_path, {"": (1e6, 0.0005, 1)}, 9)
    assert facts["ended"] == "decided" and 2 <= len(facts["processes"]) <= 5
    assert [one["round"] for one in facts["processes"]] == list(range(len(facts["processes"])))


def test_one_round_decides_no_comparison() -> None:
    """Its order is not balanced, and the size of the difference is to be known too."""
    rule: Any = {"margin": 0.02, "comparisons": 1, "budget_s": 60.0}
    rounds = interleaved_runs.Rounds(rule, "a")
    for why in ("", interleaved_runs.DECIDED):
        rounds.add({"a": 1.0, "b": 100.0}, 1.0)
        assert rounds.why_end() == why


def test_steps_of_processes_are_joined_with_sides_and_numbers(tmp_path: Path) -> None:
    for name, text in (("a", "step,x\n0,5\n1,6\n"), ("b", "step,x\n0,7\n")):
        (tmp_path / name).write_text(text)
    given = [("", tmp_path / "a"), ("bf16", tmp_path / "b")]
    assert interleaved_runs.join_steps(given, tmp_path / "all") == 3
    assert (tmp_path / "all").read_text() == "side,process,step,x\n,0,0,5\n,0,1,6\nbf16,1,0,7\n"


def test_processes_of_one_side_are_alike() -> None:
    facts = [{"batch": 1, "torch": "2"}, {"batch": 2, "torch": "2"}, {"batch": 1, "torch": "2", "device": "b"}]
    said = "processes of one side differ in device: None and b"
    assert interleaved_runs.find_difference(["a", "b", "a"], facts) == said
    assert interleaved_runs.find_difference(["a", "b", "c"], facts) is None
    assert interleaved_runs.summarize_processes(["a", "b", "b"], facts, 5, "b")["batch"] == 2
    assert interleaved_runs.summarize_processes(["a"], facts[:1], 5)["items"] == 0


def test_so_many_start_at_a_time_as_there_are_cpus_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four CPUs, rounds of three begin one at a time, and of two, two."""
    monkeypatch.setattr(interleaved_runs.os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    alive, most = [0], list[int]()

    def begun(*given: Any) -> Any:
        alive[0] += 1
        most.append(alive[0])
        process: Any = SimpleNamespace(poll=lambda: None, wait=lambda: alive.__setitem__(0, alive[0] - 1) or 0)
        gate: Any = SimpleNamespace(wanted=lambda: True, open=lambda: None)
        foreman: Any = SimpleNamespace(over=lambda process: False)
        return nullcontext(interleaved_runs.WaitingProcess(process, gate, foreman))

    monkeypatch.setattr(interleaved_runs, "_begun", begun)
    for count, at_once, by_shifts, expected in ((12, 9, 3, 3), (12, 9, 2, 4), (5, 9, 0, 4), (5, 2, 0, 2), (3, 0, 0, 1)):
        most.clear()
        assert list(interleaved_runs.run_in_turn([["x"]] * count, at_once, by_shifts=by_shifts)) == [0] * count
        assert max(most) == expected and len(most) == count


def test_processes_wait_for_the_turn_and_shift_that_they_are_told_of(tmp_path: Path) -> None:
    code = "import os; print(*sorted(k for k in os.environ if k in ('PROFZOO_TURN', 'PROFZOO_SHIFT')))"
    words, starter = [sys.executable, "-S", "-c", code], ProcessStarter(fork=False)
    for waiting, by_shifts in ((False, False), (True, False), (False, True), (True, True)):
        with (
            (tmp_path / "out").open("w+b") as to,
            interleaved_runs._begun(words, starter, waiting, by_shifts, to) as one,
        ):
            assert one.process.wait() == 0
        assert (tmp_path / "out").read_text().split() == ["PROFZOO_SHIFT"] * by_shifts + ["PROFZOO_TURN"] * waiting


def test_rounds_add_up_the_samples_of_all_processes() -> None:
    facts = [{"items": 3, "loss": 1.0}, {"items": 5, "loss": 2.0}, {"loss": 3.0}]
    found = interleaved_runs.summarize_processes(["a", "b", "a"], facts, 9)
    assert (found["items"], found["steps"], found["loss"]) == (8, 9, 1.0)
    assert [(one["side"], one.get("items")) for one in found["processes"]] == [("a", 3), ("b", 5), ("a", None)]


def write_steps(path: Path, times: np.ndarray, gpu: bool) -> Path:
    rows = [f"{index},{1 if gpu else round(ns)},{round(ns) if gpu else ''}" for index, ns in enumerate(times)]
    path.write_text("step,wall_ns,gpu_ns\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("spread", "gpu"), [(0.001, True), (0.01, False), (0.05, True)])
def test_the_spread_of_drawn_steps_is_found(tmp_path: Path, spread: float, gpu: bool) -> None:
    drawn = np.random.default_rng(1).normal(1.0, spread, (5, 400)) * 1e9
    paths = [write_steps(tmp_path / f"{place}.csv", times, gpu) for place, times in enumerate(drawn)]
    assert interleaved_runs.measure_spread(paths) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("spread", [0.003, 0.006, 0.008])
def test_the_mean_of_a_window_is_known_to_a_tenth_of_the_margin(spread: float) -> None:
    count = interleaved_runs.count_needed_steps(spread, 0.02, 10**6)
    means = np.random.default_rng(2).normal(1.0, spread, (4000, count)).mean(axis=1)
    assert means.std() <= 0.002 * 1.05 and (count == interleaved_runs.LEAST or means.std() >= 0.002 * 0.9)


def test_one_slow_process_does_not_lengthen_the_windows_of_all(tmp_path: Path) -> None:
    steady = [write_steps(tmp_path / f"{place}.csv", np.full(20, 1e6), True) for place in range(4)]
    wild = write_steps(tmp_path / "wild.csv", np.linspace(1e6, 9e6, 20), True)
    assert interleaved_runs.shorten_window(["lstm", "window=20"], [*steady, wild], 0.02) == ["window=8"]
    # Without steps it stays, windows are never lengthened, and a command of a user's own may have none.
    for words in (["window=20"], ["window=4"], []):
        assert interleaved_runs.shorten_window(["lstm", *words], [], 0.02) == words
