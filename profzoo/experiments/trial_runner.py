"""Tries settings on a cell: the most promising first, then combinations of those that helped.

Run as `python -m profzoo.experiments.trial_runner`.

Each trial is a process that times the cell with some settings changed. Trials run in rounds, which trial_search.py
plans. Several processes of a round start at the same time and wait for their turns. If the budget does not suffice for
a full round, the round runs only the unchanged cell and the fastest settings so far. On a CPU, each setting runs in a
pair with a process of the unchanged cell (interleaved_runs.py).
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, NotRequired, TypedDict

from profzoo.experiments import interleaved_runs
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.machine import job_child
from profzoo.statistics import sequential
from profzoo.statistics.speedup import FASTER, UNDECIDED

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Puts the settings that are tried on a cell in order: its plans first, in their order, and then the rest.

# The most plans that are tried although the panel has no such settings.
PLANS = 3


class ExpectedPlan(TypedDict):
    """What is expected of settings: their gain, their place among the plans of the cell, and their words.

    not_possible: why the cell cannot have them; they have no gain.
    """

    gain: float | None
    rank: NotRequired[int]
    words: NotRequired[Sequence[str]]
    not_possible: NotRequired[str]


def add_plans(
    candidates: Mapping[str, Sequence[str]], expected: Mapping[str, ExpectedPlan]
) -> dict[str, Sequence[str]]:
    """Return the candidates with the first PLANS plans that are expected to help and that no candidate is.

    Args:
        candidates: setting words by name.
        expected: what is expected of settings, by the same names.

    >>> own = {"both": {"gain": 2.0, "rank": 1, "words": ["a=1", "b=2"]}, "slow": {"gain": 0.9, "words": ["c=1"]}}
    >>> add_plans({"a": ["a=1"]}, own)
    {'a': ['a=1'], 'both': ['a=1', 'b=2']}
    """
    more = [
        (_place(one), name, one["words"])
        for name, one in expected.items()
        if name not in candidates and one.get("words") and (one["gain"] or 0.0) > 1
    ]
    return {**candidates, **{name: words for _, name, words in sorted(more)[:PLANS]}}


def order_settings(candidates: Mapping[str, Sequence[str]], expected: Mapping[str, ExpectedPlan]) -> list[str]:
    """Return names of candidates in the order in which they are tried.

    Plans that are expected to gain come first, then settings of which nothing is expected, in their own order, and then
    plans that are not expected to gain. Settings that the cell is said not to be able to have come last.

    >>> words = {"a": ["a=1"], "b": ["b=1"], "c": ["c=1"], "d": ["d=1", "b=2"]}
    >>> plans = {"a": {"gain": 0.9, "rank": 2}, "c": {"gain": 1.5, "rank": 1}}
    >>> order_settings(words, plans | {"b=2": {"gain": None, "words": ["b=2"], "not_possible": "it waits"}})
    ['c', 'b', 'a', 'd']
    """
    impossible = {word for one in expected.values() if one.get("not_possible") for word in one.get("words", ())}

    def key(name: str) -> tuple[int, float]:
        one = expected.get(name)
        if impossible & set(candidates[name]):
            return 3, 0.0
        if one is None or one["gain"] is None:
            return 1, 0.0
        return 0 if one["gain"] > 1 else 2, _place(one)

    return sorted(candidates, key=key)


def _place(one: ExpectedPlan) -> float:
    """Return what plans are sorted by: their rank, or without ranks the gain."""
    return one["rank"] if "rank" in one else -(one["gain"] or 0.0)


# Plans which settings trials run next: each setting alone, then combinations of those that helped.
#
# Trials run in rounds with the unchanged cell, every second round in reverse order. Settings are compared within the
# same rounds. Rounds of both directions have equal weight, so that drift affects all alike.
#
# `plan_rounds` runs each setting in a fixed number of rounds. `DecidedSearch` repeats rounds until each setting is
# decided: a round has the unchanged cell, all undecided settings, and at most one combination beside the best one
# before it. A setting leaves the rounds once it is faster, slower or equivalent (profzoo/statistics/sequential.py). A
# combination starts as soon as two settings look faster, without waiting for the others, so that a short budget
# suffices for it.

Names = tuple[str, ...]
# Names of the settings of the unchanged cell: none.
BASE: Names = ()
# Settings that are slower than the cell by more than this after ROUNDS rounds are not tried again in fixed rounds.
# Settings help only if they are faster by as much. Decided or not, they look faster after as many rounds.
WORTH, ROUNDS = 0.02, 2
# Times of a data sample in a round, by names of the settings; None if the process failed.
Took = Mapping[Names, float | None]


def plan_rounds(candidates: Mapping[str, Sequence[str]], repeats: int) -> Generator[list[Names], Took, Names]:
    """Yield the trials of each next round, in order; receive the times of a data sample in the round before.

    Args:
        candidates: setting words by name, the best expected first.
        repeats: number of processes for settings that are not dropped.

    Returns: the names of the settings that are fastest together.
    """
    done: list[Took] = []
    going: list[Names] = [(name,) for name in candidates]
    while len(done) < repeats:
        yield from _round(done, [BASE, *going])
        dropped = 1 + WORTH if len(done) >= ROUNDS else math.inf
        going = [names for names in going if not any_failed(done, names) and time_ratio(done, names) <= dropped]
    helping = sorted((names for names in going if is_faster(done, names)), key=lambda names: time_ratio(done, names))
    standing = yield from _together(done, candidates, helping)
    for before, best in reversed(list(pairwise(standing))):
        while not any_failed(done, best) and count_common_rounds(done, best) < repeats:
            yield from _round(done, [BASE, before, best])
        if is_faster(done, best, before):
            return best
    return next((names for names in helping if is_faster(done, names)), BASE)


def _together(
    done: list[Took], words: Mapping[str, Sequence[str]], helping: Sequence[Names]
) -> Generator[list[Names], Took, list[Names]]:
    """Return the best combinations, built by adding one helpful setting at a time to the unchanged cell."""
    standing = [BASE]
    for names in helping:
        best = next((one for one in reversed(standing) if not any_failed(done, one)), BASE)
        if not can_combine(words, best, names):
            continue
        both = (*best, *names)
        if best:
            yield from _round(done, [BASE, best, both])
        if is_faster(done, both, best):
            standing.append(both)
    return standing


def can_combine(words: Mapping[str, Sequence[str]], best: Names, more: Names) -> bool:
    """Return whether a setting can be added to a combination.

    It cannot if the combination already sets one of its keys, or if both together are a candidate with its own name.
    """
    own, added = ({word for name in names for word in words[name]} for names in (best, more))
    keys, other_keys = ({word.partition("=")[0] for word in some} for some in (own, added))
    return not keys & other_keys and not (best and own | added in map(set, words.values()))


def _round(done: list[Took], order: Sequence[Names]) -> Generator[list[Names], Took]:
    """Run one more round without failed settings, in reverse order every second time."""
    these = [names for names in dict.fromkeys(order) if not any_failed(done, names)]
    done.append((yield these[::-1] if len(done) % 2 else these))


def any_failed(done: Sequence[Took], names: Names) -> bool:
    """Return whether these settings failed in any round."""
    return any(took.get(names, 0.0) is None for took in done)


def count_common_rounds(done: Sequence[Took], names: Names, beside: Names = BASE) -> int:
    """Return the number of rounds in which both completed."""
    return sum(bool(took.get(names) and took.get(beside)) for took in done)


def time_ratio(done: Sequence[Took], names: Names, beside: Names = BASE) -> float:
    """Return the time with these settings over the time with others, in common rounds; infinity without any.

    The medians over forward and over reversed rounds have equal weight, because drift affects them in opposite ways.
    """
    found: tuple[list[float], list[float]] = ([], [])
    for number, took in enumerate(done):
        if (mine := took.get(names)) and (other := took.get(beside)):
            found[number % 2].append(mine / other)
    medians = [median(some) for some in found if some]
    return geometric_mean(medians) if medians else math.inf


def is_faster(done: Sequence[Took], names: Names, beside: Names = BASE) -> bool:
    """Return whether these settings never failed, and are faster than the others by more than the threshold."""
    return not any_failed(done, names) and time_ratio(done, names, beside) < 1 - WORTH


def find_fastest(done: Sequence[Took]) -> Names:
    """Return the fastest settings that help and ran in enough rounds; otherwise the unchanged cell."""
    tried = dict.fromkeys(names for took in done for names in took if names)
    sure = [names for names in tried if is_faster(done, names) and count_common_rounds(done, names) >= ROUNDS]
    return min(sure, key=lambda names: time_ratio(done, names), default=BASE)


class DecidedSearch:
    """Trials of one cell so far, and what is to run next."""

    def __init__(
        self,
        candidates: Mapping[str, Sequence[str]],
        margin: float,
        done: Sequence[Took],
        known: sequential.Spread = sequential.ASSUMED,
    ) -> None:
        """Begin without a round.

        Args:
            candidates: setting words by name, the best expected first.
            margin: largest relative difference that counts as equivalent, such as 0.02.
            done: times of a data sample in each round, by names of the settings; whoever runs the rounds adds to it.
            known: spread of rounds that is known from other processes.
        """
        self._words, self._margin, self.done, self._known = candidates, margin, done, known
        # Combinations that were started, each beside the best one before it.
        self._beside: dict[Names, Names] = {}
        # Settings that cannot be decided in time.
        self.given_up: set[Names] = set()

    def decide(self, names: Names, beside: Names = BASE) -> sequential.Decision:
        """Decide between settings and others, by the rounds in which both ran."""
        pairs = [(took[names], took[beside]) for took in self.done if took.get(names) and took.get(beside)]
        between = [math.log(mine / other) for mine, other in pairs if mine and other]
        return sequential.decide(between, self._margin, known=self._known)

    def rounds(self) -> Generator[list[Names], object, Names]:
        """Yield the trials of each next round, in order; go on once its times are in `done`. Returns the chosen."""
        yield [BASE, *((name,) for name in self._words)]
        while these := self._next():
            order = [BASE, *these]
            yield order[::-1] if len(self.done) % 2 else order
        return self.find_fastest()

    def _next(self) -> list[Names]:
        """Return the settings of the next round, besides the unchanged cell; empty if there is nothing to decide."""
        found: list[Names] = [(name,) for name in self._words if self._is_open((name,))]
        for both, best in self._next_combination():
            found += [best, both]
        return list(dict.fromkeys(found))

    def _is_open(self, names: Names, beside: Names = BASE) -> bool:
        failed = any_failed(self.done, names) or any_failed(self.done, beside)
        return not failed and names not in self.given_up and self.decide(names, beside).outcome == UNDECIDED

    def _next_combination(self) -> list[tuple[Names, Names]]:
        """Return the combination to run, with the best one before it; empty if there is none.

        Combinations are built by adding each helpful setting once, the fastest first.
        """
        for both, beside in self._beside.items():
            if self._is_open(both, beside):
                return [(both, beside)]
        helping = sorted(
            (one for one in ((name,) for name in self._words) if self._looks_faster(one)),
            key=lambda names: time_ratio(self.done, names),
        )
        if not helping:
            return []
        best = self._best_combination() or helping[0]
        added = {names[len(beside) :] for names, beside in self._beside.items()}
        for one in helping:
            if one not in added and can_combine(self._words, best, one):
                self._beside[(*best, *one)] = best
                return [((*best, *one), best)]
        return []

    def _best_combination(self) -> Names:
        """Return the last combination that is faster than the one before it; empty if there is none."""
        faster = [both for both, best in self._beside.items() if self._is_faster(both, best)]
        return faster[-1] if faster else ()

    def _is_faster(self, names: Names, beside: Names = BASE) -> bool:
        worth = time_ratio(self.done, names, beside) < 1 - WORTH
        return worth and not any_failed(self.done, names) and self.decide(names, beside).outcome == FASTER

    def _looks_faster(self, names: Names) -> bool:
        enough = count_common_rounds(self.done, names) >= ROUNDS and not any_failed(self.done, names)
        return self._is_faster(names) or (enough and time_ratio(self.done, names) < 1 - WORTH)

    def give_up(self, round_s: float, left_s: float) -> None:
        """Leave out what cannot be decided in the time that is left; round_s: seconds of a process of each setting."""
        for names in {names for took in self.done for names in took if names} - self.given_up:
            beside = self._beside.get(names, BASE)
            found = self.decide(names, beside)
            if found.rounds < sequential.GIVEN_UP_FROM or found.outcome != UNDECIDED:
                continue
            if found.hopeful is None or found.hopeful * round_s > left_s:
                self.given_up.add(names)

    def find_fastest(self) -> Names:
        """Return the fastest settings that are decided to be faster, a combination also than what it was built on."""
        tried = dict.fromkeys(names for took in self.done for names in took if names)
        sure = [one for one in tried if self._is_faster(one)]
        sure = [one for one in sure if one not in self._beside or self._is_faster(one, self._beside[one])]
        return min(sure, key=lambda names: time_ratio(self.done, names), default=BASE)


TOGETHER = "+"
# Why trials ended: all settings were tried, the budget was used up, or the unchanged cell failed.
ALL, BUDGET, FAILED = "all", "budget", "failed"
LINE = 300


def change_words(words: Sequence[str], changes: Sequence[Sequence[str]]) -> list[str]:
    """Apply changed settings to a cell's words; the last change of a setting wins.

    >>> change_words(["lstm", "train", "batch=8", "seed=0"], [["batch=16"], ["graph=true"]])
    ['lstm', 'train', 'batch=16', 'seed=0', 'graph=true']
    """
    settings = {word.partition("=")[0]: word for word in words}
    settings |= {word.partition("=")[0]: word for change in changes for word in change}
    return list(settings.values())


class TriedCell(TypedDict):
    """A cell on which settings are tried, in words of its command line."""

    # Model and phase.
    name: str
    # Words before the cell's own, these, and words after them.
    program: Sequence[str]
    words: Sequence[str]
    load: Sequence[str]
    # Setting words by the candidate's name.
    candidates: Mapping[str, Sequence[str]]


class TrialRunner:
    """Runs rounds of trials and stores their results."""

    def __init__(
        self,
        given: TriedCell,
        folder: Path,
        at_once: int = 1,
        starter: ProcessStarter | None = None,
        numerics: bool = False,
        margin: float = WORTH,
        least_s: float = 0.0,
    ) -> None:
        """Begin without a round.

        Args:
            given: the cell. folder: where files of processes go. at_once: number of processes that may start at the
                same time.
            starter: starts the processes; without it, each starts by itself.
            numerics: whether the first process of each setting repeats its first steps in double precision.
            margin: largest relative difference that counts as equivalent; it decides how long later windows are.
            least_s: seconds that windows on a CPU last at least.
        """
        self._given, self._folder, self._at_once, self._numerics = given, folder, at_once, numerics
        self._starter = starter or ProcessStarter(fork=False)
        self.sides: list[str] = []
        self.steps: list[tuple[str, Path]] = []
        self.facts: list[Sidecar] = []
        self.failed: dict[str, str] = {}
        self.done: list[Took] = []
        # Seconds of a process, by its settings.
        self.seconds: dict[Names, float] = {}
        self._forked, self._margin, self._least_s = False, margin, least_s
        # Whether each setting runs in a pair with the unchanged cell, and the number of rounds and pairs so far.
        self.pairs, self._count = interleaved_runs.runs_on_cpu([given["words"]]), 0
        # Changes of the cell's words after the first round.
        self._window: list[str] = []

    def run(self, order: Sequence[Names], until: float) -> Took:
        """Run one process of each; return the time of a data sample in ns, None if it failed (see `failed`).

        Processes after a failure of the unchanged cell are missing. Processes that would end after `until` (monotonic
        clock, s) are missing too: in the first round the last ones, later the slowest ones.
        """
        took = dict[Names, float | None]()
        order = self.within(order, until) if self.done else order
        settings = [names for names in order if names]
        # The unchanged cell runs first in every second pair, as in rounds.
        paired = [
            [BASE, names] if (len(self.done) + place) % 2 else [names, BASE] for place, names in enumerate(settings)
        ]
        for group in paired if self.pairs and settings else [order]:
            if took and not self.done and time.monotonic() + self.expected_s(group[-1]) > until:
                break
            part = self._run_group(group, until)
            base, first = part.get(BASE), took.get(BASE)
            # Times of a pair count in relation to its own process of the unchanged cell.
            scale = first / base if first and base else 1.0
            took |= {names: ns and ns * scale for names, ns in part.items()}
            if base is None and BASE in part:
                break
        if not self.done:
            steps = [path for _, path in self.steps]
            self._window = interleaved_runs.shorten_window(self._given["words"], steps, self._margin)
        self.done.append(took)
        return took

    def _run_group(self, order: Sequence[Names], until: float) -> Took:
        """Run processes one after the other, or a pair at once; the arguments and the result are those of `run`."""
        took, number = dict[Names, float | None](), self._count
        paths = [self._folder / f"{number}-{place}.csv" for place in range(len(order))]
        printed = [path.with_suffix(".txt") for path in paths]
        plain = [self._command(*one) for one in zip(order, paths, strict=True)]
        pair = len(order) if self.pairs and len(order) > 1 else 0
        beside = bool(pair) and interleaved_runs.can_run_at_once(plain)
        commands = interleaved_runs.lengthen_windows(plain, self._least_s, beside) if pair else plain
        # The time of the first process must not contain that of imports which all have in common.
        self._forked = bool(commands) and self._starter.prepare(self._command(BASE, paths[0]))
        began, in_turn = time.monotonic(), interleaved_runs.run_in_turn
        with closing(in_turn(commands, self._at_once, printed, pair, self._starter, beside)) as ending:
            codes: Iterator[int] = iter(ended := [*ending]) if pair else ending
            if pair and not any(ended):
                interleaved_runs.level_round(paths)
            for names, path, said in zip(order, paths, printed, strict=True):
                if took and not pair and not self.done and time.monotonic() + self.expected_s(names) > until:
                    break
                code = next(codes)
                how = {"round": number} | ({"beside": pair} if beside else {})
                took[names] = self._keep(how, names, path, said.read_text(errors="replace"), code)
                self.seconds[names] = time.monotonic() - began
                began = began if pair else time.monotonic()
                if code and names == BASE:
                    break
        self._count += 1
        return took

    @property
    def round_s(self) -> float:
        """Expected seconds of another round of the unchanged cell and one setting."""
        return self.expected_s(BASE) * (1 if self.pairs else 2)

    def within(self, order: Sequence[Names], until: float) -> list[Names]:
        """Return the part of a round that ends before `until`: the unchanged cell, with the fastest settings that fit.

        It is empty if only the unchanged cell fits.
        """
        left = until - time.monotonic() - (0.0 if self.pairs else self.expected_s(BASE))
        kept = {BASE} if left >= 0 else set()
        for names in sorted(filter(None, order), key=lambda names: time_ratio(self.done, names)):
            if self.expected_s(names) <= left:
                kept.add(names)
                left -= self.expected_s(names)
        return [names for names in order if names in kept] if len(kept) > 1 or len(order) == len(kept) else []

    def _command(self, names: Names, path: Path) -> list[str]:
        settings = change_words(
            self._given["words"], [*(self._given["candidates"][name] for name in names), self._window]
        )
        files = ["--steps", str(path), "--facts", str(path.with_suffix(".json"))]
        first = self._numerics and TOGETHER.join(names) not in self.sides
        return [*self._given["program"], *settings, *self._given["load"], *files, *(["--numerics"] if first else [])]

    def _keep(self, how: Mapping[str, int], names: Names, path: Path, said: str, code: int) -> float | None:
        side = TOGETHER.join(names)
        print(f"[{side or 'as it is'}] exit code {code}\n{said}", flush=True)
        if code:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            self.failed[side] = (lines[-1] if lines else f"exit code {code}")[:LINE]
            return None
        facts = json.loads(path.with_suffix(".json").read_text())
        self.sides.append(side)
        self.steps.append((side, path))
        self.facts.append(facts | how | ({"forked": True} if self._forked else {}))
        # The median, by which tables compare processes too.
        return interleaved_runs.median_step(path) / facts["batch"]

    def expected_s(self, names: Names) -> float:
        """Expected seconds of a process: its own last time, otherwise the longest time so far."""
        return self.seconds.get(names, max(self.seconds.values(), default=0.0))


def run_trials(
    runner: TrialRunner,
    candidates: Mapping[str, Sequence[str]],
    repeats: int | None,
    budget_s: float,
    margin: float = WORTH,
    known: sequential.Spread = sequential.ASSUMED,
) -> dict[str, str]:
    """Run trials until all are done, the next ones would exceed the budget, or the unchanged cell fails.

    repeats: processes for settings that are not dropped; None repeats rounds until each setting is decided. known:
    spread of rounds that is known from other processes.

    Returns: `ended`, the reason, and `chosen`, the names of the chosen settings.

    Raises:
        RuntimeError: the unchanged cell fails at once, so nothing was measured.
    """
    until = time.monotonic() + budget_s
    search = DecidedSearch(candidates, margin, runner.done, known)
    going = search.rounds() if repeats is None else plan_rounds(candidates, repeats)
    order, ended = next(going), ""
    while not ended:
        took = runner.run(order, until)
        if took.get(BASE, 0.0) is None:
            if not runner.facts:
                raise RuntimeError(runner.failed[""])
            ended = FAILED
        elif len(took) < len(order):
            ended = BUDGET
        else:
            search.give_up(runner.round_s, until - time.monotonic())
            try:
                order = going.send(took)
            except StopIteration as end:
                ended = BUDGET if repeats is None and search.given_up else ALL
                return {"ended": ended, "chosen": TOGETHER.join(end.value)}
    chosen = search.find_fastest() if repeats is None else find_fastest(runner.done)
    return {"ended": ended, "chosen": TOGETHER.join(chosen)}


def _read_expected(path: Path | None, name: str) -> tuple[Mapping[str, ExpectedPlan], sequential.Spread]:
    """Return what is expected of a cell's settings, and the spread of its rounds; path: of trials.expected.json."""
    found = json.loads(path.read_text()) if path else {"cells": {}}
    known = sequential.Spread(**found.get("spreads", {}).get(name, asdict(sequential.ASSUMED)))
    if not known.processes:
        print(f"profzoo: no spread of processes is known of {name}: {known.deviation:.0%} is assumed", file=sys.stderr)
    return found["cells"].get(name, {}), known


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    job_child.enter_job()
    parser = argparse.ArgumentParser(prog="python -m profzoo.experiments.trial_runner", description=__doc__)
    parser.add_argument("--cell", type=json.loads, required=True, help="JSON: words, program, load, candidates, names")
    parser.add_argument("--expected", type=Path, help="JSON: expected gain by cell and name of settings")
    parser.add_argument("--repeats", type=int, help="processes of what is worth them; without, until it is decided")
    parser.add_argument("--margin", type=float, default=WORTH, help="largest difference that counts as equivalent")
    parser.add_argument("--fork", action="store_true", help="fork processes from one that has imported what they need")
    parser.add_argument("--budget", type=float, required=True, help="seconds that all may take")
    parser.add_argument("--most", type=int, help="settings to try at most")
    parser.add_argument("--at-once", type=int, default=1, help="processes that may start side by side")
    parser.add_argument("--numerics", action="store_true", help="what the first process of each setting is told")
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    options = parser.parse_args(arguments)
    own, known = _read_expected(options.expected, options.cell["name"])
    candidates = add_plans(options.cell["candidates"], own)
    order = order_settings(candidates, own)[: options.most]
    planned = {name: words for name, words in candidates.items() if name not in options.cell["candidates"]}
    options.cell["candidates"] = candidates
    with tempfile.TemporaryDirectory() as folder, closing(ProcessStarter(options.fork)) as starter:
        how = (options.at_once, starter, options.numerics, options.margin)
        least_s = 0.0 if options.repeats else interleaved_runs.LEAST_S
        runner = TrialRunner(options.cell, Path(folder), *how, least_s)
        try:
            words = {name: options.cell["candidates"][name] for name in order}
            outcome = run_trials(runner, words, options.repeats, options.budget, options.margin, known)
        except RuntimeError as error:
            print(f"profzoo: the unchanged cell failed: {error}", file=sys.stderr)
            return 2
        if outcome["ended"] == FAILED:
            print(f"profzoo: trials ended because the unchanged cell failed: {runner.failed['']}", file=sys.stderr)
        found = interleaved_runs.summarize_processes(
            runner.sides, runner.facts, interleaved_runs.join_steps(runner.steps, options.steps)
        )
    told = {
        "failed": runner.failed,
        "tried": order,
        "planned": planned,
        "round_s": round(runner.round_s, 3),
        "spread": asdict(known),
    }
    options.facts.write_text(json.dumps(found | outcome | told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
