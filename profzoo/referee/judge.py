"""Judges a candidate against a reference, two states of one program: whether it is faster, and computes the same.

What decides is out of the candidate's reach: the clock, the seeds of the inputs and the checks are in this process, and
the code of both states in others. `docs/guides/referee.md` says how.
"""

import math
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profzoo.compare.numeric_checks import Check
from profzoo.errors import ConfigError
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.referee import session, states
from profzoo.referee.command_rounds import CommandMatch
from profzoo.referee.envelope import Abstention, Claim, Envelope
from profzoo.referee.exchange import CANDIDATE, REFERENCE, DifferentError, InvalidError, RefusedError
from profzoo.referee.rounds import PRECISIONS, Match, Options
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED

__all__ = [
    "PRECISIONS",
    "DifferentError",
    "InvalidError",
    "Judgement",
    "Options",
    "RefusedError",
    "judge",
    "open_rounds",
]

DEFAULTS = Options()
DIFFERENT, INVALID = "different", "invalid"
OUTCOMES = (FASTER, SLOWER, EQUIVALENT, UNDECIDED, DIFFERENT, INVALID)
# A pair of processes may differ from another one by so much, so that a smaller gain takes two pairs.
OF_ONE_PAIR = 0.1
# Types of numbers that are coarser than the declared precision says.
COARSE = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
FINE = ("fp32", "tf32")
# What tells apart quantities of one kind.
NUMBERED = re.compile(r" \d+(?: of \d+)?| for inputs of \w+|the largest of ")
# Operators that are named where both sides call them differently often.
NAMED = 4


@dataclass(frozen=True)
class Judgement:
    """What was found.

    outcome: faster, slower, equivalent, undecided, different or invalid. ratio, low, high: the candidate's time over
    the reference's, and the interval; None without a round. reference_s, candidate_s: seconds of a step by the
    referee's clock, and `..._device_s` by the device's. numerics: differences that were found and allowed, by what they
    are of. work: what a step of each side calls, and how they differ. why: the outcome in a sentence. rounds: logarithm
    of the candidate's over the reference's time of each round, in order.
    """

    outcome: str
    why: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reference_s: float | None = None
    candidate_s: float | None = None
    reference_device_s: float | None = None
    candidate_device_s: float | None = None
    numerics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    rounds: Sequence[float] = ()
    confidence: float = 1 - sequential.ERROR
    subject: str = ""
    notes: Sequence[str] = ()

    def to_claim(self) -> Claim:
        """Return the judgement as a claim of an envelope."""
        return Claim(
            id=f"judgement:{self.subject}",
            kind="judgement",
            subject=self.subject,
            outcome=self.outcome,
            says=self.why,
            value=self.ratio,
            low=self.low,
            high=self.high,
            unit="candidate's time / reference's time" if self.ratio is not None else "",
            confidence=self.confidence if self.ratio is not None else None,
        )

    def to_answer(self, question: Sequence[str]) -> Envelope:
        """Return the judgement as an answer, which claims nothing if it is undecided."""
        if self.outcome == UNDECIDED:
            return Envelope(question, [], [Abstention(self.subject, self.why)])
        return Envelope(question, [self.to_claim()])


@contextmanager
def open_rounds(
    reference: str, candidate: str, options: Options = DEFAULTS, starter: ProcessStarter | None = None
) -> Iterator[Callable[[], float]]:
    """Yield a function that plays one more round and returns the log of the candidate's over the reference's time.

    The function raises RefusedError if the candidate computes something else, or does what falsifies its times; so does
    this context, as results are checked before the first round.

    Args:
        reference, candidate: states, as `states.copy_state` takes them.
        options: how they are judged.
        starter: starts processes; several judgements that share one import torch once.

    Raises:
        ConfigError: there is no such state, or the reference cannot be run.
        RefusedError: the candidate is not to be compared.
    """
    with _matched(reference, candidate, options, starter) as match:
        match.open()
        yield match.play_round


@contextmanager
def _matched(
    reference: str, candidate: str, options: Options, starter: ProcessStarter | None
) -> Iterator[Match | CommandMatch]:
    home = Path(tempfile.mkdtemp(prefix="profzoo-judge-"))
    own: ProcessStarter | None = None
    match: Match | CommandMatch | None = None
    try:
        program = options.module, options.command
        first = states.copy_state(reference, home / REFERENCE, None, *program)
        second = states.copy_state(candidate, home / CANDIDATE, first, *program)
        if first.command:
            match = CommandMatch(first, second, options, home)
        else:
            starter = starter or (own := ProcessStarter(fork=True))
            match = Match(first, second, options, starter, home)
        yield match
    finally:
        if match:
            match.close()
        if own:
            own.close()
        for folder in (home / REFERENCE, home / CANDIDATE):
            if folder.exists():
                states.remove_copies(folder)
        shutil.rmtree(home, ignore_errors=True)


def judge(
    reference: str,
    candidate: str,
    options: Options = DEFAULTS,
    level: float = sequential.ERROR,
    starter: ProcessStarter | None = None,
) -> Judgement:
    """Judge a candidate against a reference; the arguments are those of `open_rounds`.

    level: probability with which sides that are equally fast may be called different.

    Raises:
        ConfigError: there is no such state, or the reference cannot be run.
    """
    ends = time.monotonic() + options.budget_s
    with _matched(reference, candidate, options, starter) as match:
        between: list[float] = []
        try:
            match.open()
            decision = _decide(match, between, options, level, ends)
            work = _check_work(match.finish(), options)
        except RefusedError as error:
            return _describe(match, between, None, (error.outcome, str(error)), {}, level)
        return _describe(match, between, decision, _conclude(match, decision, level), work, level)


def _decide(
    match: Match | CommandMatch, between: list[float], options: Options, level: float, ends: float
) -> sequential.Decision:
    """Play rounds until they decide, or until the budget ends; between: gets what each gives."""
    comparisons = count_comparisons(level)
    while True:
        between.append(match.play_round())
        decision = sequential.decide(between, options.margin, comparisons=comparisons, known=match.known)
        if decision.outcome != UNDECIDED:
            if _is_confirmed(match, decision):
                return decision
            if decision.rounds > 1:
                match.renew()
        if time.monotonic() + match.expect_s() > ends:
            return decision


def judge_in_session(
    path: Path,
    name: str,
    reference: str,
    candidate: str,
    options: Options = DEFAULTS,
    starter: ProcessStarter | None = None,
) -> tuple[Judgement, Envelope]:
    """Judge a candidate as the next test of a session, which gives the level; return the judgement, and the answer.

    path: file of the session, which is created if it is missing. name: of what is tried; empty for that of the states.
    A candidate that is refused leaves the test unanswered, and the answer says why.

    Raises:
        ConfigError: there is no such state, the reference cannot be run, or the session has another margin.
        DataError: something is wrong with the file of the session.
    """
    ends = time.monotonic() + options.budget_s
    with _matched(reference, candidate, options, starter) as match:
        _require_margin(path, options.margin)
        between, work, outcome = list[float](), dict[str, Any](), UNDECIDED

        def play() -> float:
            if not match.begun_at:
                match.open()
            between.append(match.play_round())
            return between[-1]

        def confirm(decision: sequential.Decision) -> bool:
            if not _is_confirmed(match, decision):
                if decision.rounds > 1:
                    match.renew()
                return False
            if unchecked := match.numbers.explain_unchecked():
                raise RefusedError(f"what the candidate computes could not be checked: {unchecked}")
            work.update(_check_work(match.finish(), options))
            return True

        def refuse(error: Exception) -> bool:
            nonlocal outcome
            outcome = error.outcome if isinstance(error, RefusedError) else outcome
            return isinstance(error, RefusedError)

        answer = session.judge_in_session(
            path, name or match.subject, tuple(map(states.digest_state, match.states)), play,  # type: ignore[arg-type]
            confirm=confirm, refuse=refuse, go_on=lambda: time.monotonic() + match.expect_s() <= ends,
        )  # fmt: skip
        found = _describe(match, between, None, (outcome, ""), work, sequential.ERROR)
    return _add_answer(found, answer), answer


def _require_margin(path: Path, margin: float) -> None:
    """Create a session with this margin; raise ConfigError if it is there with another one."""
    kept = session.open_session(path, margin).read().margin
    if kept != margin:
        told = f"its margin is {kept:g}, and {margin:g} was given"
        raise ConfigError(f"{path}: {told}: give --margin {kept:g}, or another file")


def _add_answer(found: Judgement, answer: Envelope) -> Judgement:
    """Return a judgement with what the answer of a session's test claims, or why it claims nothing."""
    for one in answer.abstained:
        return replace(found, why=one.why)
    (claim,) = answer.claims
    return replace(found, outcome=claim.outcome, why=claim.says, ratio=claim.value, low=claim.low, high=claim.high,
                   confidence=claim.confidence or found.confidence)  # fmt: skip


def count_comparisons(level: float) -> int:
    """Return the number of comparisons by which `sequential.decide` keeps the error to this level or below.

    >>> count_comparisons(0.05), count_comparisons(0.001), count_comparisons(0.5)
    (1, 50, 1)
    """
    return max(math.ceil(round(sequential.ERROR / level, 6)), 1)


def _is_confirmed(match: Match | CommandMatch, decision: sequential.Decision) -> bool:
    """Whether enough pairs of processes and both orders of the sides were seen, and no other clock contradicts."""
    assert decision.found
    large = abs(math.log(decision.found.ratio)) > math.log1p(OF_ONE_PAIR)
    several = decision.rounds > 1 and (large or decision.outcome == EQUIVALENT or len(match.begun_at) > 1)
    return several and match.confirm(decision)


def _conclude(match: Match | CommandMatch, decision: sequential.Decision, level: float) -> tuple[str, str]:
    """Return the outcome, and why."""
    assert decision.found
    if unchecked := match.numbers.explain_unchecked():
        return UNDECIDED, f"what the candidate computes could not be checked: {unchecked}"
    found = decision.found
    change = f"{abs(found.ratio - 1):.1%} {'less' if found.ratio < 1 else 'more'} time per step than the reference"
    span = f"{found.low:.4f} to {found.high:.4f} of its time at {1 - sequential.ERROR:.0%}"
    rounds = f"{decision.rounds} round{'s' if decision.rounds > 1 else ''}"
    # One round has no spread, and so next to no interval.
    told = f"the candidate takes {change} ({f'{span}, ' if decision.rounds > 1 else ''}{rounds})"
    if decision.outcome in (FASTER, SLOWER) and not _is_confirmed(match, decision):
        return UNDECIDED, f"{told}, which {match.confirming} not confirmed: raise the budget"
    if decision.outcome == UNDECIDED:
        return UNDECIDED, f"{told}, which does not decide: raise the budget"
    if decision.outcome == EQUIVALENT:
        return EQUIVALENT, f"{told}, which is within {match.options.margin:.1%}"
    return decision.outcome, told


def _describe(
    match: Match | CommandMatch,
    between: Sequence[float],
    decision: sequential.Decision | None,
    concluded: tuple[str, str],
    work: Mapping[str, Any],
    level: float,
) -> Judgement:
    outcome, why = concluded
    found = decision.found if decision else None
    steps = match.steps_of_turn if match.turns else 1

    def median(name: str, device: bool) -> float | None:
        each = [turns[name].device_s if device else turns[name].wall_s for turns in match.turns]
        known = [one / steps for one in each if one is not None]
        return statistics.median(known) if known else None

    return Judgement(
        outcome=outcome,
        why=why,
        ratio=found.ratio if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        reference_s=median(REFERENCE, False),
        candidate_s=median(CANDIDATE, False),
        reference_device_s=median(REFERENCE, True),
        candidate_device_s=median(CANDIDATE, True),
        numerics=_largest(match.numbers.checks),
        work=work,
        rounds=list(between),
        confidence=1 - sequential.ERROR,
        subject=match.subject,
        notes=tuple(match.notes),
    )


def _largest(checks: Sequence[Check]) -> dict[str, tuple[float, float]]:
    """Return the largest difference of each quantity, relative to what is allowed, with that."""
    found: dict[str, Check] = {}
    for check in checks:
        quantity = NUMBERED.sub("", check.quantity)
        if quantity not in found or check.excess > found[quantity].excess:
            found[quantity] = check
    return {name: (check.difference, check.tolerance) for name, check in found.items()}


def _check_work(counted: Mapping[str, Mapping[str, Any]], options: Options) -> dict[str, Any]:
    """Return what a step of each side calls, and how they differ.

    Raises:
        InvalidError: the candidate computes in a coarser format than is declared, and the reference does not.
    """
    if len(counted) < 2:
        return {**counted, "differs": "the work of the candidate could not be counted"}
    mine, its = counted[REFERENCE], counted[CANDIDATE]
    coarse = sorted((COARSE & {*its["types"]}) - {*mine["types"]})
    if coarse and options.precision in FINE:
        raise InvalidError(f"the candidate: it computes in {', '.join(coarse)}, and {options.precision} is declared")
    return {**counted, "differs": describe_work(mine, its)}


def describe_work(mine: Mapping[str, Any], its: Mapping[str, Any]) -> str:
    """Say how the work of two steps differs.

    >>> one = {"calls": {"aten::mm": 2}, "flop": 200}
    >>> describe_work(one, {"calls": {"aten::mm": 1}, "flop": 100})
    'operations 200 -> 100; aten::mm 2 -> 1'
    """
    told = [f"operations {mine['flop']:,} -> {its['flop']:,}"] if mine["flop"] != its["flop"] else []
    names = sorted(
        {*mine["calls"], *its["calls"]}, key=lambda name: -abs(mine["calls"].get(name, 0) - its["calls"].get(name, 0))
    )
    differing = [name for name in names if mine["calls"].get(name, 0) != its["calls"].get(name, 0)]
    calls = [f"{name} {mine['calls'].get(name, 0)} -> {its['calls'].get(name, 0)}" for name in differing[:NAMED]]
    rest = [f"and {len(differing) - NAMED} other operators"] if len(differing) > NAMED else []
    return "; ".join([*told, *calls, *rest]) or "both sides call the same operators"
