"""A session's file: answers are computed anew, what was tampered with is named, and writers share it safely."""

import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profzoo.errors import DataError
from profzoo.referee import envelope
from profzoo.referee import session as sessions
from profzoo.statistics import sequential
from tests.benchmarks import referee_sessions, sequential_power

STATES = ("sha256:aa", "sha256:bb")
Entry = dict[str, Any]


def rounds(gain: float, seed: int = 0, kind: str = "0.5 % apart") -> sessions.Rounds:
    drawn = sequential_power.between_rounds(kind, 128, np.random.default_rng(seed)) - np.log1p(gain)
    return iter(drawn.tolist()).__next__


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session with a gain, a no-op, a loss, and the gain tried again."""
    path = tmp_path / "session.jsonl"
    for seed, (name, gain) in enumerate((("fuse", 0.1), ("no-op", 0.0), ("unroll", -0.1), ("fuse", 0.1))):
        sessions.judge_in_session(path, name, STATES, rounds(gain, seed))
    return path


def entries(path: Path) -> list[Entry]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, found: list[Entry]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in found))


def sign(found: list[Entry]) -> list[Entry]:
    """The same with valid digests, as somebody writes who knows how."""
    before = ""
    for entry in found:
        entry["before"] = before
        before = entry["digest"] = sessions.digest_entry(entry)
    return found


def test_answers_have_levels_and_names_of_their_own(path: Path) -> None:
    assert sessions.check_session(path) == []
    tests = sessions.Session(path).read().tests
    assert [(test.name, test.outcome) for test in tests] == [
        ("fuse", "faster"), ("no-op", "equivalent"), ("unroll", "slower"), ("fuse (2)", "faster")]  # fmt: skip
    assert [test.level for test in tests] == [sequential.give_level(number) for number in (1, 2, 3, 4)]
    assert list(path.parent.iterdir()) == [path]


def test_a_digest_is_of_the_entry_without_itself(path: Path) -> None:
    entry = entries(path)[1]
    said = entry.pop("digest")
    assert said == "sha256:" + hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
    assert entry["before"] == entries(path)[0]["digest"]


def change_a_round(found: list[Entry]) -> list[Entry]:
    found[4]["rounds"][0] = -0.5
    return found


def remove_a_test(found: list[Entry]) -> list[Entry]:
    return found[:3] + found[5:]


def raise_a_level(found: list[Entry]) -> list[Entry]:
    found[3]["level"] = 0.05
    return sign(found)


def claim_more(found: list[Entry]) -> list[Entry]:
    found[4]["outcome"] = "faster"
    return sign(found)


def answer_again(found: list[Entry]) -> list[Entry]:
    return sign([*found[:5], {**found[2], "test": 2}, *found[5:]])


def use_a_name_again(found: list[Entry]) -> list[Entry]:
    found[7]["name"] = "fuse"
    return sign(found)


def hide_an_answer(found: list[Entry]) -> list[Entry]:
    found[2]["outcome"] = "unanswered"
    return sign(found)


def leave_a_test_out(found: list[Entry]) -> list[Entry]:
    return sign(found[:3] + found[5:])


def forget_the_settings(found: list[Entry]) -> list[Entry]:
    return sign(found[1:])


def invent_a_round(found: list[Entry]) -> list[Entry]:
    found[2]["rounds"][0] = float("nan")
    return sign(found)


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        (change_a_round, ["line 5 was changed: its digest is another", "line 5 says equivalent of test 2"]),
        (
            remove_a_test,
            ["which is not the one above: an entry was removed", "line 4 begins test 3, and test 2 is next"],
        ),
        (lambda found: [*found[:3], found[5], found[6], found[3], found[4], *found[7:]], ["entries were moved"]),
        (raise_a_level, ["line 4 gives test 2 the level 0.05, which is 0.000926 by the rule"]),
        (claim_more, ["line 5 says faster of test 2, whose rounds give equivalent"]),
        (answer_again, ["line 6 answers test 2 again, which was answered on line 5"]),
        (use_a_name_again, ["line 8 tries again what test 1 tried, under the same name fuse"]),
        (hide_an_answer, ["line 3 says unanswered of test 1, whose rounds give faster"]),
        (leave_a_test_out, ["line 4 begins test 3, and test 2 is next"]),
        (forget_the_settings, ["line 1 has no settings of a session"]),
        (invent_a_round, ["line 3 has a round that is no number"]),
        (lambda found: sign([*found, found[0]]), ["line 10 has an entry 'session', which does not belong there"]),
        (lambda found: sign([{**found[0], "error": 0.5}, *found[1:]]), ["line 2 gives test 1 the level"]),
    ],
)
def test_what_was_tampered_with_is_named(
    path: Path, tamper: Callable[[list[Entry]], list[Entry]], told: list[str]
) -> None:
    write(path, tamper(entries(path)))
    found = sessions.check_session(path)
    for one in told:
        assert any(one in line for line in found), found
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in found)
    with pytest.raises(DataError, match="judge again in a new session"):
        sessions.Session(path).begin("next", STATES)
    assert sessions.describe_session(path).status == "error"


def test_a_removed_end_is_found_by_the_digest_that_somebody_kept(path: Path) -> None:
    head = entries(path)[-1]["digest"]
    assert sessions.check_session(path, head) == []
    write(path, entries(path)[:-2])
    assert sessions.check_session(path) == []
    assert "the end of the file was removed" in sessions.check_session(path, head)[0]


def test_a_line_that_is_cut_off_is_told_and_loses_no_other(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])
    assert sessions.check_session(path) == []
    answer = sessions.describe_session(path)
    assert len(answer.claims) == 3 and answer.abstained[0].why == "test 4 is unfinished after 0 rounds"
    assert "line 9 is cut off: its writer ended while it wrote" in answer.notes
    sessions.judge_in_session(path, "next", STATES, rounds(0.1))
    assert sessions.check_session(path) == []
    assert [test.outcome for test in sessions.Session(path).read().tests][3:] == ["unfinished", "faster"]


def test_rounds_that_end_in_an_error_have_spent_their_level(path: Path) -> None:
    def fail() -> float:
        raise RuntimeError("the candidate computes something else")

    with pytest.raises(RuntimeError, match="something else"):
        sessions.judge_in_session(path, "wrong", STATES, fail)
    test = sessions.Session(path).read().tests[-1]
    assert (test.outcome, test.rounds, test.why) == ("unanswered", (), "the candidate computes something else")
    with pytest.raises(DataError, match="no finite ratio"):
        sessions.judge_in_session(path, "empty", STATES, lambda: float("nan"))
    assert sessions.check_session(path) == [] and len(sessions.Session(path).read().tests) == 6
    with pytest.raises(DataError, match="test 5 waits for no answer"):
        sessions.Session(path).add(test, [-0.5])


def test_one_outlier_decides_nothing(tmp_path: Path) -> None:
    """Processes whose times have heavy tails give one once in a while, and a session of many tests would call it a gain."""
    for outlier in (-20.0, 20.0):
        values = iter([outlier, *[0.001, -0.002, 0.0] * 40])
        answer = sessions.judge_in_session(tmp_path / "session.jsonl", "no-op", STATES, values.__next__)
        assert [claim.outcome for claim in answer.claims] in ([], ["equivalent"])


def test_rounds_go_on_until_a_decision_is_confirmed(path: Path) -> None:
    answer = sessions.judge_in_session(path, "next", STATES, rounds(0.1), confirm=lambda found: found.rounds >= 9)
    assert answer.claims[0].says.startswith("next is 9.") and "by 9 rounds (test 5 at level " in answer.claims[0].says
    assert sessions.check_session(path) == []


def test_without_time_for_a_confirmation_a_test_is_unanswered(path: Path) -> None:
    left = iter([True] * 8)
    answer = sessions.judge_in_session(
        path, "next", STATES, rounds(0.1), confirm=lambda _: False, go_on=lambda: next(left, False)
    )
    assert answer.status == "abstained" and "have not confirmed that it is faster" in answer.abstained[0].why
    test = sessions.Session(path).read().tests[-1]
    assert (test.outcome, len(test.rounds)) == ("unanswered", 9) and sessions.check_session(path) == []


def test_an_answer_is_an_envelope_with_the_interval_of_its_level(path: Path) -> None:
    answer = sessions.describe_session(path)
    envelope.check(envelope.to_json(answer))
    claim = answer.claims[0]
    assert (claim.outcome, claim.subject, claim.evidence[0].row) == ("faster", "fuse", 2)
    assert claim.low is not None and claim.high is not None and claim.low < 1 / 1.1 < claim.high < 1
    assert claim.confidence == 1 - sequential.give_level(1) and answer.claims[1].confidence == 0.95
    assert "fuse is 9." in claim.says and "% faster than its reference" in claim.says
    assert any("5% of sessions" in note for note in answer.notes)
    assert sessions.describe_session(path.with_name("none")).status == "error"


def test_hopeless_rounds_are_given_up(tmp_path: Path) -> None:
    answer = sessions.judge_in_session(tmp_path / "s", "coarse", STATES, rounds(0.0, 1, "25 % apart"))
    assert answer.status == "abstained" and "is undecided after 24 rounds" in answer.abstained[0].why


WRITER = """
import sys
from pathlib import Path
from profzoo.referee.session import open_session
session = open_session(Path(sys.argv[1]))
for _ in range(4):
    session.add(session.begin("same", ("a", "b")), [-0.1, -0.1001])
"""


def test_two_processes_write_one_session(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(2)]
    assert [one.wait() for one in writers] == [0, 0]
    assert sessions.check_session(path) == []
    tests = sessions.Session(path).read().tests
    assert len(tests) == len({test.name for test in tests}) == 8


@pytest.mark.slow
def test_programs_that_really_run_get_an_answer(tmp_path: Path) -> None:
    """Two copies of a network on this CPU; whatever the machine does meanwhile, the file is sound."""
    path = tmp_path / "session.jsonl"
    with referee_sessions.real_rounds() as measured:
        for _ in itertools.repeat(None, 2):
            sessions.judge_in_session(path, "no-op", STATES, measured, 8)
    assert sessions.check_session(path) == []
    found = sessions.Session(path).read().tests
    assert len(found) == 2 and all(test.rounds and test.outcome != "faster" for test in found)
