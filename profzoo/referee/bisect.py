"""Finds the state of a history that made a program slower, by a binary search whose error is bounded over all of it.

Each answer of a noisy binary search may be wrong (Karp and Kleinberg 2007; Ben-Or and Hassidim 2008 weigh all states by
a posterior). A posterior needs the probability of a wrong answer, which nobody knows of a machine's noise. Here, each
question goes on until the error of its answer is bounded, and all bounds add up to the error of the search:

1. The last state is measured against the first until the slowdown is known to PRECISE of itself.
2. A probe measures a state against the first and the last in turn. Half of the slowdown is subtracted, so the mean is
   below 0 for a state like the first and above 0 for one like the last. The sign is decided by sequential intervals.
3. The two neighbours that are left are measured against each other. If they do not differ, answers contradict each
   other, and both neighbours are asked again.

The k-th question of the search has its own share of the error. States that do not run, and those that are like neither
end, are passed over. The search then ends with a range where they stand beside the change. It supposes that the history
has one change of about the whole size; the measured step says how much of the slowdown the found state has.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from profzoo.compare import contributions
from profzoo.formatting import format_ns
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED, Ratio

FOUND, RANGE, SAME = "found", "range", "same"
GOOD, BAD, NEITHER = "like the first", "like the last", "like neither end"
# Shares of the error: of the size, of all probes that a search without obstacles takes, and of all later questions.
SIZE_SHARE, PROBE_SHARE, LATER_SHARE = 0.2, 0.5, 0.3
# How near the lower end of the slowdown's interval has to be, as a part of the slowdown. Above a half, the middle
# between both ends is on the right side of each.
PRECISE = 0.6
# Rounds per question, if nothing else ends it.
MOST_ROUNDS = sequential.LOOKS[-1]
# How often answers that contradict each other are asked again.
MOST_AGAIN = 3
# Runs one more round of two states, by their places: the logarithm of the second one's over the first one's time.
Measure = Callable[[int, int], float]


class SkippedError(RuntimeError):
    """A state does not run; the message says why."""

    def __init__(self, place: int, why: str) -> None:
        """place: of the state in its history."""
        super().__init__(why)
        self.place = place


class SpentError(RuntimeError):
    """The budget of rounds or time is spent."""


@dataclass(frozen=True)
class Probe:
    """Answer to a question: whether the state at a place is like the first or the last, after so many rounds."""

    place: int
    answer: str
    rounds: int


@dataclass
class Search:
    """A search and what it has found so far.

    low, high: places of the last state that is like the first one, and of the first that is like the last one. outcome:
    found, range or same. size: of the whole slowdown, last over first state; step: high over low. skipped: why, by
    place. why: what ended the search without one state.
    """

    count: int
    low: int = 0
    high: int = 0
    outcome: str = RANGE
    size: Ratio | None = None
    step: Ratio | None = None
    probes: list[Probe] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    rounds: int = 0
    contradictions: int = 0
    why: str = ""

    @property
    def suspects(self) -> range:
        """Places of the states among which the change is."""
        return range(self.low + 1, self.high + 1)


def share_error(question: int, count: int) -> float:
    """Return the share of the error that a question has after the size is known; all shares add up to 1 - SIZE_SHARE.

    question: its number, from 1. count: of the history's states.

    >>> round(sum(share_error(question, 65) for question in range(1, 7)), 9) == PROBE_SHARE
    True
    """
    expected = max(math.ceil(math.log2(max(count - 1, 1))), 1)
    if question <= expected:
        return PROBE_SHARE / expected
    return sequential.give_level(question - expected, LATER_SHARE, half=1)


def search(
    count: int,
    measure: Measure,
    budget: int,
    error: float = sequential.ERROR,
    margin: float = 0.02,
    tell: Callable[[Probe], object] = bool,
) -> Search:
    """Search the first state of a history that is as slow, or as fast, as the last one.

    Args:
        count: of the states, of which the first and the last differ.
        measure: runs one more round of two states, by their places; raises SkippedError if one does not run, and
            SpentError if no more may be run.
        budget: rounds of the whole search.
        error: largest probability of a wrong state, or of a range without the right one.
        margin: largest relative difference of first and last state that counts as equivalent.
        tell: gets each answer.

    Raises:
        SkippedError: the first or the last state does not run.
    """
    asked = _Questions(Search(count, 0, count - 1), measure, budget, error, tell)
    try:
        asked.measure_size(margin)
        while asked.sign and not asked.narrow():
            pass
    except SpentError:
        asked.found.why = f"the budget was spent after {asked.found.rounds} rounds"
    except SkippedError as error:
        if error.place in (0, count - 1):
            raise
        asked.found.why = f"a state that ran before does not run any more: {error}"
    return asked.found


@dataclass
class _Questions:
    found: Search
    measure: Measure
    budget: int
    error: float
    tell: Callable[[Probe], object]
    # 1 if the last state is slower than the first, -1 if it is faster, 0 as long as that is not known.
    sign: int = 0
    middle: float = 0.0
    asked: int = 0

    def measure_size(self, margin: float) -> None:
        """Measure the last state against the first until the difference is known well enough to tell states apart."""
        last, values = self.found.count - 1, list[float]()
        while len(values) < MOST_ROUNDS:
            values.append(self._round(0, last))
            decision = sequential.decide(values, margin, SIZE_SHARE * self.error, known=sequential.UNKNOWN)
            self.found.size = decision.found
            if decision.outcome == EQUIVALENT:
                self.found.outcome, self.found.why = SAME, f"the last state is as fast as the first within {margin:.0%}"
                return
            if decision.outcome in (FASTER, SLOWER) and decision.found and _is_precise(decision.found):
                self.sign, self.middle = (
                    (1 if decision.outcome == SLOWER else -1),
                    abs(math.log(decision.found.ratio)) / 2,
                )
                return
        size = self.found.size
        known = f": by {size.low - 1:+.1%} to {size.high - 1:+.1%}" if size else ""
        self.found.why = f"{MOST_ROUNDS} rounds do not tell how much the first and the last state differ{known}"

    def narrow(self) -> bool:
        """Ask about one more state, or confirm the last two; return whether the search has ended."""
        if (place := self._next_place()) is not None:
            self._place_answer(place, self._probe(place))
            return False
        if self.found.contradictions < MOST_AGAIN and self._forget_undecided():
            return False
        return self._confirm()

    def _forget_undecided(self) -> bool:
        """Let those suspects be asked again that were like neither end; return whether there are any."""
        undecided = [place for place in self.found.suspects if self.found.skipped.get(place) == NEITHER]
        for place in undecided:
            del self.found.skipped[place]
        self.found.contradictions += bool(undecided)
        return bool(undecided)

    def _next_place(self) -> int | None:
        """Return the untried place that is nearest to the middle of the suspects; None if none is left."""
        found = self.found
        inside = [place for place in range(found.low + 1, found.high) if place not in found.skipped]
        return min(inside, key=lambda place: abs(2 * place - found.low - found.high), default=None)

    def _place_answer(self, place: int, answer: str) -> None:
        if answer == GOOD:
            self.found.low = place
        elif answer == BAD:
            self.found.high = place
        else:
            self.found.skipped.setdefault(place, NEITHER)

    def _probe(self, place: int) -> str:
        """Decide which end a state is like, by rounds against both in turn."""
        last, start = self.found.count - 1, self.found.rounds

        def measure_round(number: int) -> float:
            if number % 2:
                return self.sign * self._round(place, last) * -1 + self.middle
            return self.sign * self._round(0, place) - self.middle

        try:
            _, outcome = self._decide(measure_round)
        except SkippedError as error:
            if error.place != place:
                raise
            self.found.skipped[place] = str(error)
            return NEITHER
        answer = {SLOWER: BAD, FASTER: GOOD}.get(outcome, NEITHER)
        self.found.probes.append(Probe(place, answer, self.found.rounds - start))
        self.tell(self.found.probes[-1])
        return answer

    def _decide(self, measure_round: Callable[[int], float]) -> tuple[list[float], str]:
        """Run rounds until the sign of their mean is known with the error of the next question."""
        self.asked += 1
        error, values = self.error * share_error(self.asked, self.found.count), list[float]()
        while len(values) < MOST_ROUNDS:
            values.append(measure_round(len(values)))
            decision = sequential.decide(values, 0.0, error, known=sequential.UNKNOWN)
            if decision.outcome in (FASTER, SLOWER):
                return values, decision.outcome
        return values, UNDECIDED

    def _confirm(self) -> bool:
        """Measure the last two states against each other; return whether the search has ended."""
        found = self.found
        low, high = found.low, found.high
        values, outcome = self._decide(lambda number: self.sign * self._round(low, high) - self.middle)
        step = [self.sign * (value + self.middle) for value in values]
        found.step = sequential.decide(step, 0.0, self.error, known=sequential.UNKNOWN).found
        if outcome == SLOWER:
            found.outcome = FOUND if high == low + 1 else RANGE
            found.why = "" if high == low + 1 else "the other states of the range do not run, or are like neither end"
            return True
        found.contradictions += 1
        if found.contradictions > MOST_AGAIN:
            found.why = "answers contradict each other: the slowdown may come in several steps"
            found.low, found.high = 0, found.count - 1
            return True
        self._ask_again(low, high)
        return False

    def _ask_again(self, low: int, high: int) -> None:
        """Ask again about two neighbours that do not differ; one of them that answers otherwise moves the suspects."""
        last = self.found.count - 1
        for place, said in ((low, GOOD), (high, BAD)):
            answer = self._probe(place) if 0 < place < last else said
            if answer == BAD and said == GOOD:
                self.found.low, self.found.high = 0, low
                return
            if answer == GOOD and said == BAD:
                self.found.low, self.found.high = high, last
                return

    def _round(self, reference: int, candidate: int) -> float:
        if self.found.rounds >= self.budget:
            raise SpentError
        self.found.rounds += 1
        return self.measure(reference, candidate)


def _is_precise(found: Ratio) -> bool:
    ends = sorted(abs(math.log(end)) for end in (found.low, found.high))
    return ends[0] >= PRECISE * abs(math.log(found.ratio))


# What changed between two neighbours, by the rows of a table of parts (tables/compare_parts.csv) or of operators.

OPERATOR_LEVEL = "operator"
REPLACED = "replaced"
# How `change` of a table of parts is told, and what else differs where it says nothing.
CHANGES = {
    contributions.APPEARED: "appeared",
    contributions.VANISHED: "vanished",
    contributions.CHANGED: "launch configuration",
    contributions.LAUNCHED: "number of launches",
    contributions.RETYPED: "type of layer",
    REPLACED: "another algorithm",
}
# Levels that name causes, the most exact first. Kernels also have a layer and a class, which say the same less exactly.
LEVELS = (contributions.KERNEL_LEVEL, OPERATOR_LEVEL, contributions.LAYER_LEVEL, contributions.PART_LEVEL)
NAMED = 3


@dataclass(frozen=True)
class Change:
    """A kernel, operator, layer or part of the step that takes another time, or is another one.

    old, new: its names on both sides; empty on the side that lacks it. share: of the difference of both sides.
    """

    level: str
    old: str
    new: str
    old_ns: float
    new_ns: float
    share: float
    change: str

    def __str__(self) -> str:
        """Describe the change in words."""
        name = f"{self.old} -> {self.new}" if self.old and self.new and self.old != self.new else self.new or self.old
        why = f", {CHANGES.get(self.change, self.change)}" if self.change else ""
        times = f"{format_ns(self.old_ns)} -> {format_ns(self.new_ns)}"
        return f"{self.level} {name}: {times}, {self.share:.0%} of the difference{why}"


def name_changes(rows: pd.DataFrame, most: int = NAMED) -> list[Change]:
    """Return the largest changes of the most exact level that is known, and the largest part of the step.

    rows: of a table of parts (contributions.COLUMNS) for one comparison; level, range, name, baseline_ns, candidate_ns
    and change are read. A kernel that vanished and one that appeared in the same range are one that was replaced.
    """
    found: list[Change] = []
    for level in LEVELS:
        own = rows[rows["level"] == level].fillna({"range": "", "change": ""})
        if not len(own) or (found and level != contributions.PART_LEVEL):
            continue
        whole = float((own["candidate_ns"] - own["baseline_ns"]).sum())
        by_range = [[_change(row, whole) for row in part.to_dict("records")] for _, part in own.groupby("range")]
        changes = [one for part in by_range for one in _pair(part, whole)]
        grown = sorted((one for one in changes if one.share > 0), key=lambda one: -one.share)
        found += grown[: 1 if found else most]
    return found


def _change(row: Mapping[str, Any], whole: float) -> Change:
    old, new = float(row["baseline_ns"]), float(row["candidate_ns"])
    name, change = str(row["name"]), str(row["change"])
    names = ("" if change == contributions.APPEARED else name, "" if change == contributions.VANISHED else name)
    return Change(str(row["level"]), *names, old, new, (new - old) / whole if whole else 0.0, change)


def _pair(changes: Sequence[Change], whole: float) -> list[Change]:
    """Join the largest change that vanished and the largest that appeared to one that was replaced."""
    gone = max((one for one in changes if not one.new), key=lambda one: one.old_ns, default=None)
    come = max((one for one in changes if not one.old), key=lambda one: one.new_ns, default=None)
    if gone is None or come is None:
        return list(changes)
    share = (come.new_ns - gone.old_ns) / whole if whole else 0.0
    joined = Change(come.level, gone.old, come.new, gone.old_ns, come.new_ns, share, REPLACED)
    return [joined, *(one for one in changes if one not in (gone, come))]


def tabulate_operators(sides: Sequence[Mapping[str, tuple[int, float]]]) -> pd.DataFrame:
    """Return rows like those of a table of parts, of the operators that both sides call.

    sides: of the state before and after, calls and time in ns by operator.
    """
    rows = []
    for name in sorted({*sides[0], *sides[1]}):
        (calls, old), (new_calls, new) = (side.get(name, (0, 0.0)) for side in sides)
        change = contributions.APPEARED if not calls else contributions.VANISHED if not new_calls else ""
        change = change or (f"{calls} -> {new_calls} calls" if calls != new_calls else "")
        rows.append((OPERATOR_LEVEL, "", name, old, new, change))
    return pd.DataFrame(rows, columns=["level", "range", "name", "baseline_ns", "candidate_ns", "change"])
