"""Keeps a session of tests in a file that anyone can check, and judges within it with a bounded error over all tests.

The file has JSON lines and only grows. Its first entry has the settings. A test has an entry when it begins, with its
name, its level (profzoo/statistics/sequential.py) and the digests of both states, and an entry with its answer: the
logarithm of the candidate's over the reference's time of each round, in order, and the outcome. A test that has begun
has spent its level, whether it was answered or not, so nobody can look at rounds and leave them out. What is tried
again is a new test with a new name. Each entry has its own digest and that of the entry before it.

The digests show entries that were removed, changed or moved. They do not show that the last entries are missing, or
that a whole file was written anew: for that, keep the digest of the last entry (`head`), which each answer has.
"""

import datetime
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profzoo.errors import DataError, first_error_line
from profzoo.machine import file_locks
from profzoo.referee import envelope
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED

Rounds = Callable[[], float]
Confirm = Callable[[sequential.Decision], bool]
Refuse = Callable[[Exception], bool]
VERSION = 1
SETTINGS, BEGUN, ENDED = "session", "begun", "ended"
# Outcomes of tests besides those of sequential.decide: one without an answer, and one whose rounds ended in an error.
UNFINISHED, UNANSWERED = "unfinished", "unanswered"
MARGIN = 0.02
# A gain of 3 % takes fewer rounds if processes are 1 % apart, or in two modes that are 3 % apart.
MOST_ROUNDS = 64
# Rounds from which on a test may be given up. Fewer, of which some are disturbed, forecast too many to a decision.
GIVEN_UP_FROM = 24
# What an entry has besides `entry`, `written`, `before` and `digest`, with its type.
FIELDS: Mapping[str, Mapping[str, type]] = {
    SETTINGS: {"version": int, "error": float, "margin": float},
    BEGUN: {"test": int, "name": str, "reference": str, "candidate": str, "level": float},
    ENDED: {"test": int, "rounds": list, "outcome": str, "why": str},
}
COMMON: Mapping[str, type] = {"entry": str, "written": str, "before": str, "digest": str}
UNIT = "candidate's time / reference's time"
CHECKED = "judge again in a new session, or take the file from where it was kept unchanged"


@dataclass(frozen=True)
class SessionTest:
    """One test of a session.

    number: from 1. states: digests of the reference and of the candidate. level: probability with which it may call
    equal states different. rounds: logarithms of the candidate's over the reference's time. outcome: faster, slower,
    equivalent, undecided, unfinished or unanswered. line: of the file, on which the last entry of the test is. head:
    digest of that entry.
    """

    number: int
    name: str
    states: tuple[str, str]
    level: float
    rounds: tuple[float, ...] = ()
    outcome: str = UNFINISHED
    why: str = ""
    line: int = 0
    head: str = ""


@dataclass
class SessionContent:
    """What a file of a session says, and what is wrong with it.

    flaws: one line each, the first of the file first. remarks: entries that were cut off. head: digest of the last
    entry.
    """

    error: float = sequential.ERROR
    margin: float = MARGIN
    tests: list[SessionTest] = field(default_factory=list)
    head: str = ""
    flaws: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


def digest_entry(entry: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of an entry without its own digest; the digest of the entry before is part of it."""
    text = json.dumps({key: value for key, value in entry.items() if key != "digest"}, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def decide_rounds(rounds: Sequence[float], comparisons: int, content: SessionContent) -> sequential.Decision:
    """Decide about the rounds of a test at its level, which is the session's error over `comparisons`."""
    return sequential.decide(rounds, content.margin, content.error, comparisons, sequential.UNKNOWN)


def run_rounds(
    rounds: Rounds,
    comparisons: int,
    content: SessionContent,
    most_rounds: int,
    confirm: Confirm = bool,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[float]:
    """Run rounds until they decide, cannot be hoped to decide within `most_rounds`, or are so many; yield each one.

    confirm: whether a decision may end the rounds. Later looks have their own shares of the error, so going on is free.
    go_on: whether there is time for another round.
    """
    values: list[float] = []
    while len(values) < most_rounds and (not values or go_on()):
        values.append(float(rounds()))
        if not math.isfinite(values[-1]):
            raise DataError(f"round {len(values)} has no finite ratio of times: measure again")
        yield values[-1]
        found = decide_rounds(values, comparisons, content)
        hopeless = found.hopeful is None or len(values) + found.hopeful > most_rounds
        if confirm(found) if found.outcome != UNDECIDED else len(values) >= GIVEN_UP_FROM and hopeless:
            return


def read_session(text: str) -> SessionContent:
    """Read a session's file, and compute all levels and outcomes again from the raw values."""
    content, torn = SessionContent(), []
    for line, written in enumerate(text.split("\n"), 1):
        entry = _parse(written)
        if entry is None:
            torn += [line] if written.strip("\0 \r\t") else []
            continue
        if why := _find_wrong_field(entry, first=not content.digests):
            content.flaws.append(f"line {line} {why}")
        else:
            content.flaws += [f"line {line} {why}" for why in _check_chain(entry, content)]
            content.flaws += [f"line {line} {why}" for why in ENTRIES[entry["entry"]](entry, content, line)]
        content.head = str(entry.get("digest", ""))
        content.digests.append(content.head)
    content.remarks = [f"line {line} is cut off: its writer ended while it wrote" for line in torn]
    if not content.digests:
        content.flaws.append("line 1 has no settings of a session")
    _name_moved(content)
    return content


def check_session(path: Path, head: str = "") -> list[str]:
    """Return one line for each thing that is wrong with a session's file: what, and where; none if it is as written.

    head: digest of the last entry that somebody has kept; the file has to contain it.

    Raises:
        OSError: the file cannot be read.
    """
    content = read_session(path.read_text(encoding="utf-8", errors="replace"))
    lost = [f"the entry {head} is missing: the end of the file was removed, or all of it written anew"]
    told = [*content.flaws, *(lost if head and head not in content.digests else [])]
    return [f"{path}: {why}" for why in told]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _find_wrong_field(entry: Mapping[str, Any], first: bool) -> str:
    """Return what an entry lacks; empty if it has all fields, and settings come first and nowhere else."""
    kind = str(entry.get("entry"))
    if kind not in FIELDS or (kind == SETTINGS) != first:
        return "has no settings of a session" if first else f"has an entry {kind!r}, which does not belong there"
    fields = {**COMMON, **FIELDS[kind]}
    if wrong := [name for name, like in fields.items() if type(entry.get(name)) is not like]:
        return f"has no valid {wrong[0]}"
    if unknown := entry.keys() - fields.keys():
        return f"has an unknown {min(unknown)}"
    numbers = entry.get("rounds", [])
    return "" if all(type(one) is float and math.isfinite(one) for one in numbers) else "has a round that is no number"


def _check_chain(entry: Mapping[str, Any], content: SessionContent) -> Iterator[str]:
    if entry["digest"] != digest_entry(entry):
        yield "was changed: its digest is another"
    if entry["before"] != content.head:
        yield f"follows on the entry {entry['before']}, which is not the one above: an entry was removed"


def _name_moved(content: SessionContent) -> None:
    """Say `moved` in place of `removed` where the entry that is missed stands elsewhere in the file."""
    for place, flaw in enumerate(content.flaws):
        missed = next((one for one in content.digests if f"entry {one}, which" in flaw), None)
        if missed and flaw.endswith("an entry was removed"):
            content.flaws[place] = flaw.replace("an entry was removed", "entries were moved, or an answer put between")


def _read_settings(entry: Mapping[str, Any], content: SessionContent, line: int) -> Iterator[str]:
    content.error, content.margin = entry["error"], entry["margin"]
    if entry["version"] != VERSION or not 0 < content.error < 1 or content.margin < 0:
        yield f"has version {entry['version']}, error {content.error} and margin {content.margin}, which are not valid"
        content.error, content.margin = sequential.ERROR, MARGIN


def _read_begun(entry: Mapping[str, Any], content: SessionContent, line: int) -> Iterator[str]:
    number, due = entry["test"], len(content.tests) + 1
    if number != due:
        yield f"begins test {number}, and test {due} is next"
    level = sequential.give_level(due, content.error)
    if entry["level"] != level:
        yield f"gives test {number} the level {entry['level']:.3g}, which is {level:.3g} by the rule"
    for test in content.tests:
        if test.name == entry["name"]:
            yield f"tries again what test {test.number} tried, under the same name {envelope.quote(test.name)}"
    states = (entry["reference"], entry["candidate"])
    content.tests.append(SessionTest(due, entry["name"], states, level, line=line))


def _read_ended(entry: Mapping[str, Any], content: SessionContent, line: int) -> Iterator[str]:
    number, rounds, said = entry["test"], entry["rounds"], entry["outcome"]
    if not 1 <= number <= len(content.tests):
        yield f"answers test {number}, which has not begun"
        return
    test = content.tests[number - 1]
    if test.outcome != UNFINISHED:
        yield f"answers test {number} again, which was answered on line {test.line}"
        return
    comparisons = sequential.count_comparisons(number)
    found = decide_rounds(rounds, comparisons, content).outcome
    if said != (UNANSWERED if entry["why"] else found):
        yield f"says {envelope.quote(said)} of test {number}, whose rounds give {found}"
    answer = {"rounds": tuple(rounds), "outcome": said, "why": entry["why"], "head": entry["digest"]}
    content.tests[number - 1] = replace(test, line=line, **answer)


ENTRIES: Mapping[str, Callable[[Mapping[str, Any], SessionContent, int], Iterator[str]]] = {
    SETTINGS: _read_settings,
    BEGUN: _read_begun,
    ENDED: _read_ended,
}


@dataclass(frozen=True)
class Session:
    """A session's file. Other processes may write it at the same time, so nothing of it is kept in memory."""

    path: Path

    def read(self) -> SessionContent:
        """Read the file.

        Raises:
            DataError: something is wrong with the file; the message has the first flaw.
            OSError: the file cannot be read.
        """
        content = read_session(self.path.read_text(encoding="utf-8", errors="replace"))
        if content.flaws:
            raise DataError(f"{self.path}: {content.flaws[0]}: {CHECKED}")
        return content

    def begin(self, name: str, states: tuple[str, str]) -> SessionTest:
        """Begin a test, which spends its level. A name that is taken gets a number, because it is a new test.

        states: digests of the reference and of the candidate.
        """
        with self._locked() as content:
            number, taken = len(content.tests) + 1, {test.name for test in content.tests}
            names = (name, *(f"{name} ({count})" for count in range(2, number + 2)))
            free = next(one for one in names if one not in taken)
            level = sequential.give_level(number, content.error)
            fields = {"test": number, "name": free, "reference": states[0], "candidate": states[1], "level": level}
            _append(self.path, {"entry": BEGUN, **fields}, content.head)
        return SessionTest(number, free, states, level)

    def add(self, test: SessionTest, rounds: Sequence[float], why: str = "") -> SessionTest:
        """Add the answer of a test that has begun; its outcome follows from the rounds.

        why: what leaves the test unanswered, such as an error that ended the rounds; empty if nothing does.

        Raises:
            DataError: the test has not begun in this session, or has an answer.
        """
        with self._locked() as content:
            known = content.tests[test.number - 1 : test.number]
            if [one.outcome for one in known] != [UNFINISHED] or known[0].name != test.name:
                raise DataError(f"{self.path}: test {test.number} waits for no answer: begin a new test")
            values = [float(one) for one in rounds]
            found = decide_rounds(values, sequential.count_comparisons(test.number), content)
            outcome = UNANSWERED if why else found.outcome
            entry = {"entry": ENDED, "test": test.number, "rounds": values, "outcome": outcome, "why": why}
            head = _append(self.path, entry, content.head)
        return replace(known[0], rounds=tuple(values), outcome=outcome, why=why, head=head)

    @contextmanager
    def _locked(self) -> Iterator[SessionContent]:
        """Exclude other writers, and yield what the file has."""
        with _lock(self.path):
            yield self.read()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    with file_locks.hold_lock(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _append(path: Path, fields: Mapping[str, Any], before: str) -> str:
    """Add an entry on a line of its own, also below one that was cut off; return its digest."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = {**fields, "written": now, "before": before}
    entry["digest"] = digest_entry(entry)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return str(entry["digest"])


def open_session(path: Path, margin: float = MARGIN, error: float = sequential.ERROR) -> Session:
    """Open a session; a file that is missing or empty is created, with these settings.

    margin: largest relative difference that counts as equivalent. error: largest probability of any wrong `faster` or
    `slower` in the session.

    Raises:
        DataError: something is wrong with the file.
        OSError: the file cannot be read or written.
    """
    with _lock(path):
        if not path.exists() or not path.stat().st_size:
            settings = {"version": VERSION, "error": float(error), "margin": float(margin)}
            _append(path, {"entry": SETTINGS, **settings}, "")
    found = Session(path)
    found.read()
    return found


def judge_in_session(
    path: Path,
    name: str,
    states: tuple[str, str],
    rounds: Rounds,
    most_rounds: int = MOST_ROUNDS,
    confirm: Confirm = bool,
    refuse: Refuse = lambda _: False,
    go_on: Callable[[], bool] = lambda: True,
) -> envelope.Envelope:
    """Judge a candidate as the next test of a session, and return the answer.

    name: of what is tried. states: digests of the reference and of the candidate. rounds: runs one more round, and
    returns the logarithm of the candidate's over the reference's time; what it raises is noted in the session, and
    raised again. confirm: whether a decision may end the rounds, such as one that new processes have confirmed; without
    that, the test is unanswered. refuse: whether an error is the answer, and is not raised again. go_on: whether there
    is time for another round.
    """
    session = open_session(path)
    content, test, values, why = session.read(), session.begin(name, states), list[float](), ""
    comparisons, confirmed = sequential.count_comparisons(test.number), False

    def note(decision: sequential.Decision) -> bool:
        nonlocal confirmed
        confirmed = confirm(decision)
        return confirmed

    try:
        for value in run_rounds(rounds, comparisons, content, most_rounds, note, go_on):
            values.append(value)
        outcome = decide_rounds(values, comparisons, content).outcome
        if outcome != UNDECIDED and not confirmed:
            why = f"new processes have not confirmed that it is {outcome}: raise the budget"
    except BaseException as error:
        why = first_error_line(error)
        if not isinstance(error, Exception) or not refuse(error):
            session.add(test, values, why)
            raise
    done = session.add(test, values, why)
    notes = (_tell_head(done.number, done.head),)
    return replace(_describe([done], content, path), question=("judge", name), notes=notes)


def describe_session(path: Path) -> envelope.Envelope:
    """Return what a session has answered, computed anew from its raw values; an error if its file has a flaw."""
    question = ("session", str(path))
    try:
        content = read_session(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        told = OSError(error.strerror) if error.strerror else error
        return envelope.fail(question, told, str(path), "name the file of a session")
    if content.flaws:
        return envelope.fail(question, DataError(content.flaws[0]), str(path), CHECKED)
    bound = (
        f"At most {content.error:.0%} of sessions have any wrong `faster` or `slower`, however the tests were chosen. "
        f"Each `equivalent` alone is wrong with at most {content.error:.0%}."
    )
    notes = (_tell_head(len(content.tests), content.head), bound, *content.remarks)
    return replace(_describe(content.tests, content, path), question=question, notes=notes)


def _tell_head(tests: int, head: str) -> str:
    return f"The session had {tests} test{'s' if tests != 1 else ''}, and its last entry is {head}."


def _describe(tests: Sequence[SessionTest], content: SessionContent, path: Path) -> envelope.Envelope:
    claims, abstained = [], []
    for test in tests:
        if test.outcome in (FASTER, SLOWER, EQUIVALENT):
            claims.append(_claim(test, content, path))
        else:
            rounds = f"{len(test.rounds)} round{'s' if len(test.rounds) != 1 else ''}"
            abstained.append(
                envelope.Abstention(test.name, test.why or f"test {test.number} is {test.outcome} after {rounds}")
            )
    return envelope.Envelope((), tuple(claims), tuple(abstained))


def _claim(test: SessionTest, content: SessionContent, path: Path) -> envelope.Claim:
    """Return the claim of a test; intervals of all differences in a session hold together, as their outcomes do."""
    error = content.error if test.outcome == EQUIVALENT else test.level
    found = sequential.decide(test.rounds, content.margin, error, known=sequential.UNKNOWN).found
    assert found
    size = f"{abs(found.ratio - 1):.1%} {test.outcome} than" if test.outcome != EQUIVALENT else "equivalent to"
    return envelope.Claim(
        id=f"{path.name}:{test.number}",
        kind="judgement",
        subject=test.name,
        outcome=test.outcome,
        says=(
            f"{test.name} is {size} its reference by {len(test.rounds)} rounds "
            f"(test {test.number} at level {test.level:.2g}, entry {test.head})"
        ),
        value=found.ratio,
        low=found.low,
        high=found.high,
        unit=UNIT,
        confidence=1 - error,
        evidence=(
            envelope.Evidence(path.name, max(test.line - 1, 1) if test.line else None, f"profzoo ask session {path}"),
        ),
    )
