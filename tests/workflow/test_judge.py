"""`profzoo judge` as a user types it: what it prints, and its exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profzoo.__main__ import main
from profzoo.records import import_graph
from profzoo.referee import envelope, session
from profzoo.statistics import sequential
from tests.unit.test_judge_cheats import state

COMMON = ["--module", "model.py", "--device", "cpu", "--threads", "1", "--budget", "3s"]


def run(*words: str, package: Path = import_graph.PROJECT) -> subprocess.CompletedProcess[str]:
    """Run the command with the package of a checkout."""
    return subprocess.run(
        [sys.executable, "-m", "profzoo", "judge", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(package)}, cwd=package,
    )  # fmt: skip


def test_a_gate_fails_on_what_it_was_told(tmp_path: Path) -> None:
    sides = state("program", tmp_path / "a"), state("not_finite", tmp_path / "b")
    done = run(*sides, *COMMON, "--json", "--fail-on", "different,invalid")
    assert done.returncode == envelope.EXIT_FAILED, done.stderr
    answer = json.loads(done.stdout)
    envelope.check(answer)
    assert answer["question"] == ["judge", *sides] and answer["claims"][0]["outcome"] == "different"


@pytest.mark.slow
def test_judgements_of_a_session_have_levels_of_their_own(tmp_path: Path) -> None:
    """A gain, the program itself, and a candidate that is refused."""
    file, answers = tmp_path / "session.jsonl", []
    words = [*COMMON, "--json", "--session", str(file)]
    for name, budget in (("honest_faster", "45s"), ("honest_same", "3s"), ("skipped_layer", "3s")):
        sides = state("program", tmp_path / f"a.{name}"), state(name, tmp_path / name)
        done = run(*sides, *words, "--budget", budget, "--name", name, "--fail-on", "different")
        answers.append(json.loads(done.stdout))
        envelope.check(answers[-1])
        assert done.returncode == (4 if name == "skipped_layer" else 0 if answers[-1]["claims"] else 3), done
    (claim,) = answers[0]["claims"]
    tests = session.Session(file).read().tests
    assert claim["outcome"] == "faster" and claim["high"] < 1
    assert f"(test 1 at level {sequential.give_level(1):.2g}, entry {tests[0].head})" in claim["says"]
    assert not answers[2]["claims"] and "outputs" in answers[2]["abstained"][0]["why"]
    assert [test.name for test in tests] == ["honest_faster", "honest_same", "skipped_layer"]
    assert [test.outcome for test in tests][::2] == ["faster", "unanswered"]
    assert tests[1].outcome in ("equivalent", "undecided")
    # The reference is the same one, wherever it lies.
    assert len({test.states[0] for test in tests}) == 1 and len({test.states[1] for test in tests}) == 3
    told = session.describe_session(file)
    assert told.claims[0].says == claim["says"] and not told.error


@pytest.mark.slow
def test_one_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    sides = state("program", tmp_path / "a"), state("honest_same", tmp_path / "b")
    (tmp_path / "t").mkdir()
    command = [sys.executable, "-m", "profzoo", "judge", *sides, *COMMON, "--budget", "60s"]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(tmp_path / "t")}, cwd=import_graph.PROJECT
    ) as process:
        for _ in range(600):
            if list((tmp_path / "t").glob("*/4.candidate.own.log")):
                break
            time.sleep(0.1)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not list((tmp_path / "t").glob("profzoo-judge-*"))


@pytest.mark.slow
def test_an_answer_is_no_failure(tmp_path: Path) -> None:
    sides = state("program", tmp_path / "a"), state("honest_same", tmp_path / "b")
    done = run(*sides, *COMMON, "--fail-on", "different,invalid,slower")
    first, clock, *rest = done.stdout.splitlines()
    assert done.returncode == (3 if first.startswith("undecided") else 0), done.stdout + done.stderr
    assert first.split(":")[0] in ("undecided", "equivalent") and "by the referee's clock" in clock
    assert "work of a step: both sides call the same operators" in rest


def test_what_cannot_be_judged_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, told in (
        ([str(tmp_path / "none"), str(tmp_path)], 1, "is not a folder"),
        ([str(tmp_path), str(tmp_path), "--shape", "batch"], 2, "gives no size"),
        ([str(tmp_path), str(tmp_path), "--budget", "0s"], 2, "--budget = '0s' is 0 s: give more than 0"),
        ([str(tmp_path), str(tmp_path), "--session", "s.jsonl", "--level", "0.1"], 2, "a session gives each test"),
        ([str(tmp_path), str(tmp_path), "--fail-on", "slow"], 2, "did you mean 'slower'?"),
    ):
        ended, (printed, said) = main(["judge", *words]), capsys.readouterr()
        assert (ended, told in said, said.count("\n"), printed) == (code, True, 1, ""), said
    ended = main(["judge", str(tmp_path / "none"), str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    envelope.check(answer)
    assert ended == 1 and answer["status"] == "error"


@pytest.mark.slow
def test_a_change_of_the_referee_itself_is_noticed(tmp_path: Path) -> None:
    """The package is a copy, which the candidate changes."""
    own = tmp_path / "own"
    shutil.copytree(import_graph.PROJECT / "profzoo", own / "profzoo", ignore=shutil.ignore_patterns("__pycache__"))
    sides = state("program", tmp_path / "a"), state("writes_the_referee", tmp_path / "b")
    done = run(*sides, *COMMON, package=own)
    assert "invalid: the referee's own package was changed: referee/exchange.py was changed" in done.stdout, done
