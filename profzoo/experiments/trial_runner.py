"""Tries settings on a cell: the most promising first, then combinations of those that helped.

Run as `python -m profzoo.experiments.trial_runner`.

Each trial is a process that times the cell with some settings changed. Trials run in rounds, which trial_search.py
plans. Several processes of a round start at the same time and wait for their turns. If the budget does not suffice for
a full round, the round runs only the unchanged cell and the fastest settings so far. On a CPU, each setting runs in a
pair with a process of the unchanged cell (interleaved_runs.py).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from profzoo.cell.process_count import count_samples
from profzoo.experiments import interleaved_runs
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.experiments.trial_search import (
    BASE,
    WORTH,
    DecidedSearch,
    Names,
    Took,
    find_fastest,
    plan_rounds,
    time_ratio,
)
from profzoo.machine import job_child
from profzoo.statistics import sequential

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Puts the settings that are tried on a cell in order: its plans first, in their order, and then the rest.

# The most plans that are tried although the panel has no such settings.
PLANS = 3


class ExpectedPlan(TypedDict):
    """What is expected of settings: their gain, their place among the plans of the cell, and their words.

    not_possible: why the cell cannot have them; they have no gain. failed: why they failed in earlier trials.
    """

    gain: float | None
    rank: NotRequired[int]
    words: NotRequired[Sequence[str]]
    not_possible: NotRequired[str]
    failed: NotRequired[str]


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
    plans that are not expected to gain. Settings that the cell is said not to be able to have, and those that failed in
    earlier trials, come last.

    >>> words = {"a": ["a=1"], "b": ["b=1"], "c": ["c=1"], "d": ["d=1", "b=2"]}
    >>> plans = {"a": {"gain": 0.9, "rank": 2}, "c": {"gain": 1.5, "rank": 1}}
    >>> order_settings(words, plans | {"b=2": {"gain": None, "words": ["b=2"], "not_possible": "it waits"}})
    ['c', 'b', 'a', 'd']
    """
    impossible = [set(one["words"]) for one in expected.values() if one.get("not_possible") and one.get("words")]

    def key(name: str) -> tuple[int, float]:
        one = expected.get(name)
        if any(words <= set(candidates[name]) for words in impossible):
            return 3, 0.0
        if one is None or one["gain"] is None:
            return 1, 0.0
        return 0 if one["gain"] > 1 else 2, _place(one)

    return sorted(candidates, key=key)


def _place(one: ExpectedPlan) -> float:
    """Return what plans are sorted by: their rank, or without ranks the gain."""
    return one["rank"] if "rank" in one else -(one["gain"] or 0.0)


TOGETHER = "+"
# Why trials ended: all settings were tried, the budget was used up, or the unchanged cell failed.
ALL, BUDGET, FAILED = "all", "budget", "failed"
# Longest line about a failure; of a longer one, both ends are kept.
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
        # Setting words by name, to which the search adds; and words of each side that was to run, by its name.
        self.candidates, self.words = dict(given["candidates"]), dict[str, list[str]]()
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
        with closing(in_turn(commands, self._at_once, printed, pair, self._starter, beside)) as codes:
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
        side, changes = TOGETHER.join(names), [self.candidates[name] for name in names]
        self.words[side] = change_words([], changes)
        settings = change_words(self._given["words"], [*changes, self._window])
        files = ["--steps", str(path), "--facts", str(path.with_suffix(".json"))]
        first = self._numerics and side not in self.sides
        return [*self._given["program"], *settings, *self._given["load"], *files, *(["--numerics"] if first else [])]

    def _keep(self, how: Mapping[str, int], names: Names, path: Path, said: str, code: int) -> float | None:
        side = TOGETHER.join(names)
        print(f"[{side or 'as it is'}] exit code {code}\n{said}", flush=True)
        if code:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            why = lines[-1].removeprefix("profzoo: ") if lines else f"exit code {code}"
            self.failed[side] = why if len(why) <= LINE else f"{why[: LINE // 2]} ... {why[-LINE // 2 :]}"
            return None
        facts = json.loads(path.with_suffix(".json").read_text())
        self.sides.append(side)
        self.steps.append((side, path))
        self.facts.append(facts | how | ({"forked": True} if self._forked else {}))
        # The median, by which tables compare processes too.
        return interleaved_runs.median_step(path) / count_samples(facts)

    def expected_s(self, names: Names) -> float:
        """Expected seconds of a process: its own last time, otherwise the longest time so far."""
        return self.seconds.get(names, max(self.seconds.values(), default=0.0))


def run_trials(
    runner: TrialRunner,
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
    search = DecidedSearch(runner.candidates, margin, runner.done, known)
    going = search.rounds() if repeats is None else plan_rounds(runner.candidates, repeats)
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
    options.cell["candidates"] = {name: candidates[name] for name in order}
    with tempfile.TemporaryDirectory() as folder, closing(ProcessStarter(options.fork)) as starter:
        how = (options.at_once, starter, options.numerics, options.margin)
        least_s = 0.0 if options.repeats else interleaved_runs.LEAST_S
        runner = TrialRunner(options.cell, Path(folder), *how, least_s)
        try:
            outcome = run_trials(runner, options.repeats, options.budget, options.margin, known)
        except RuntimeError as error:
            print(f"profzoo: the unchanged cell failed: {error}", file=sys.stderr)
            return 2
        if outcome["ended"] == FAILED:
            print(f"profzoo: trials ended because the unchanged cell failed: {runner.failed['']}", file=sys.stderr)
        found = interleaved_runs.summarize_processes(
            runner.sides, runner.facts, interleaved_runs.join_steps(runner.steps, options.steps)
        )
    # What failed in earlier trials is known to fail until it runs again.
    ran = {side: {*runner.words[side]} for took in runner.done for side in map(TOGETHER.join, took)}
    past = {name: one for name, one in own.items() if "failed" in one and name not in ran}
    earlier = {name: one for name, one in past.items() if {*one["words"]} not in ran.values()}
    told = {
        "failed": {name: one["failed"] for name, one in earlier.items()} | runner.failed,
        "tried": [*runner.candidates],
        "words": {name: one["words"] for name, one in earlier.items()} | runner.candidates | runner.words,
        "round_s": round(runner.round_s, 3),
        "spread": asdict(known),
    }
    options.facts.write_text(json.dumps(found | outcome | told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
