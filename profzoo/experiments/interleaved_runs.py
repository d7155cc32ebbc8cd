"""Times cells by processes in alternation, and decides after each round whether another one is worth its time.

Run as `python -m profzoo.experiments.interleaved_runs`.

Compared sides run in turn, so that drift of the machine affects all sides alike. Each process is a command that writes
its steps and its facts to given paths; options that are unknown here are passed on to it. This module joins the files:
one row per step, and the facts of each process. Several processes start, import and build their networks at the same
time; then each sleeps until the processes before it have ended.

On a CPU, the processes of a round run at once, each on its share of the cores. Where that would change what is
compared, they work in shifts: each one pauses after a few steps, and the next continues. In both cases effects within
seconds affect all sides alike, too.
"""

import argparse
import csv
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

import numpy as np

from profzoo.cell.process_count import count_samples
from profzoo.experiments import forked_runs
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.machine import gpu_slots, gpus, job_child, time_slicing
from profzoo.statistics import sequential
from profzoo.statistics.percentiles import drop_warmup

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Says after each round of processes whether another one is worth its time: until all is decided, or cannot be.

# Why rounds ended: all was decided, the next one would exceed the budget, no decision is possible within the budget, or
# the largest number of rounds was reached.
DECIDED, BUDGET, HOPELESS, MOST = "decided", "budget", "hopeless", "most"


class StopRule(TypedDict):
    """When rounds of processes end.

    margin: largest relative difference that counts as equivalent. comparisons: number of comparisons that are judged
    together. budget_s: seconds that all rounds may take.
    """

    margin: float
    comparisons: int
    budget_s: float


def read_steady_steps(path: Path) -> np.ndarray:
    """Return the steps in steady state in ns, by the clock of process_repeats; path: a CSV of one process's steps."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    own = bool(rows and rows[0].get("own_ns"))
    clock = "gpu_ns" if any(row["gpu_ns"] for row in rows) else "own_ns" if own else "wall_ns"
    return drop_warmup(np.array([float(row[clock]) for row in rows]), first_only=own)


def median_step(path: Path) -> float:
    """Return the median step in steady state in ns; path: a CSV of one process's steps."""
    return float(np.median(read_steady_steps(path)))


@dataclass
class Rounds:
    """The rounds of some sides so far.

    rule: when to stop. reference: side with which the others are compared. sample_ns: times of a data sample by side,
    one per round. began_s: start of the rounds by the monotonic clock. round_s: seconds of the last round.
    """

    rule: StopRule
    reference: str
    sample_ns: dict[str, list[float]] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    round_s: float = 0.0

    def add(self, times: Mapping[str, float], round_s: float) -> None:
        """Add a round: the time of a data sample by side, and the seconds that the round took."""
        for side, ns in times.items():
            self.sample_ns.setdefault(side, []).append(ns)
        self.round_s = round_s

    def why_end(self) -> str:
        """Reason why no further round is worth its time; empty if one is."""
        decisions = self._decisions()
        if decisions is None:
            return DECIDED
        left = self.rule["budget_s"] - (time.monotonic() - self.began_s)
        if self.round_s > left:
            return BUDGET
        known = [one for one in decisions if one.rounds >= sequential.GIVEN_UP_FROM]
        if known and all(one.hopeful is None or one.hopeful * self.round_s > left for one in known):
            return HOPELESS
        return ""

    def _decisions(self) -> "Sequence[sequential.Decision] | None":
        """Return the undecided comparisons; None if there are none left to decide.

        One round decides none, because its order is not balanced, and the size of a difference is to be known too.
        """
        margin = self.rule["margin"]
        logs = {side: [math.log(ns) for ns in times] for side, times in self.sample_ns.items()}
        others = [side for side in logs if side != self.reference]
        if not others:
            return None if sequential.is_precise(logs[self.reference], margin) else []
        between = [np.subtract(logs[side], logs[self.reference]).tolist() for side in others]
        found = [sequential.decide(one, margin, comparisons=self.rule["comparisons"]) for one in between]
        return [one for one in found if one.missing != 0 or one.rounds < 2] or None


def read_round(sides: Sequence[str], steps: Sequence[Path], batches: Sequence[int | None]) -> dict[str, float]:
    """Return the time of a data sample in ns by side; steps: step tables of the round; batches: samples per step."""
    return {side: median_step(path) / (batch or 1) for side, path, batch in zip(sides, steps, batches, strict=True)}


# Says whether the compared processes of a round run at once.

# Compared processes on a CPU get windows of at least so many seconds, as steps vary more there than processes.
LEAST_S = 2.0


def runs_on_cpu(commands: Sequence[Sequence[str]]) -> bool:
    """Return whether these commands run cells on a CPU."""
    words = {word for command in commands for word in command}
    return "device=cpu" in words or ("device=auto" in words and not gpus.grants_gpu(os.environ))


def can_run_at_once(commands: Sequence[Sequence[str]]) -> bool:
    """Return whether the processes of a round can run at once, each on its share of the cores.

    Sides with other numbers of threads, and sides whose loader needs processes of its own, would not be compared so.
    commands: one of each side.
    """
    threads = {word.removeprefix(THREADS) for command in commands for word in command if word.startswith(THREADS)}
    alone = len(threads) != 1 or not all("workers=0" in command for command in commands)
    if alone or len(commands) < 2 or not runs_on_cpu(commands):
        return False
    (each,) = threads
    return len(commands) * (int(each) if each.isdecimal() else 1) <= len(os.sched_getaffinity(0))


def lengthen_windows(commands: Sequence[Sequence[str]], least_s: float, beside: bool) -> list[list[str]]:
    """Return the commands of compared processes with windows in which each works for so many seconds at least.

    beside: whether they run at once; else they share the time.
    """
    more = ["--at-least-s", str(least_s * (1 if beside else len(commands)))] if least_s else []
    return [[*words, *more] for words in commands]


# Says how many steps the next processes of trials have to time, by how much the steps of the first ones vary.
#
# Processes of one setting differ from each other by more than their medians are uncertain, so long windows of steady
# steps decide nothing sooner. A comparison has the variation of both anyway, because it is made of whole processes.

# The mean of a window is to be known to this part of the margin of equivalence.
PART = 0.1
# The fewest steps of a window: of these, the steady state takes at least five (statistics/percentiles.py).
LEAST = 8
WORD, THREADS = "window=", "threads="


def count_needed_steps(spread: float, margin: float, given: int) -> int:
    """Return the number of steps of a window whose mean is known to a tenth of the margin, at most as many as given.

    Args:
        spread: standard deviation of the steps of a process over their mean.
        margin: largest relative difference that counts as equivalent.
        given: steps of the window that the cell has.

    >>> count_needed_steps(0.003, 0.02, 20), count_needed_steps(0.008, 0.02, 20), count_needed_steps(0.05, 0.02, 20)
    (8, 16, 20)
    """
    return min(given, max(LEAST, math.ceil((spread / (PART * margin)) ** 2)))


def measure_spread(paths: Iterable[Path]) -> float:
    """Return the relative spread of the steps of a process, the median of all; 1 without steps. paths: CSVs."""
    several = [read_steady_steps(path) for path in paths]
    found = [float(steps.std(ddof=1) / steps.mean()) if len(steps) > 1 else 1.0 for steps in several]
    return median(found) if found else 1.0


def shorten_window(words: Sequence[str], paths: Iterable[Path], margin: float) -> list[str]:
    """Return the change of a cell's words by which the next processes time only as many steps as they have to.

    words: the cell's own. paths: steps of its processes so far. Empty for a cell without a window.
    """
    given = next((word.removeprefix(WORD) for word in words if word.startswith(WORD)), "")
    if not given.isdecimal():
        return []
    return [f"{WORD}{count_needed_steps(measure_spread(paths), margin, int(given))}"]


COLUMNS = ("side", "process")
# A shell adds this to the number of the signal that ended a program.
SIGNALLED = 128


@dataclass
class WaitingProcess:
    """A started process, which waits for its turn, and works in shifts if it can.

    going: the process works in shifts and has not ended.
    """

    process: forked_runs.Started
    gate: gpu_slots.TurnGate
    foreman: time_slicing.ShiftGiver
    going: bool = False


def run_in_turn(
    commands: Sequence[Sequence[str]],
    at_once: int,
    printed: Sequence[Path] = (),
    by_shifts: int = 0,
    starter: ProcessStarter | None = None,
    beside: bool = False,
) -> Generator[int]:
    """Run commands one after the other; yield the exit code of each when it ends.

    Closing the iterator ends all started processes.

    Args:
        commands: the commands, in order.
        at_once: number of processes that start at the same time.
        printed: file for the output of each process; empty for the output of this process.
        by_shifts: number of processes of a round, which work in shifts and start together; 0 for no shifts.
        starter: starts the processes; None starts each by itself.
        beside: whether the processes of a round run at once, in place of shifts.
    """
    starter = starter or ProcessStarter(fork=False)
    shifts, more = bool(by_shifts) and not beside, {time_slicing.BESIDE: str(by_shifts)} if beside else {}
    a_round = by_shifts or 1
    at_once = max(min(at_once, len(os.sched_getaffinity(0))) // a_round, 1) * a_round
    for first in range(0, len(commands), at_once):
        with ExitStack() as stack:
            begun = []
            for number in range(first, min(first + at_once, len(commands))):
                to = stack.enter_context(printed[number].open("wb")) if printed else None
                begun.append(stack.enter_context(_begun(commands[number], starter, at_once > 1, shifts, to, more)))
            for one in begun:
                while not one.gate.wanted() and one.process.poll() is None:
                    time.sleep(gpu_slots.TURN_PAUSE_S)
            for place in range(0, len(begun), a_round):
                these = begun[place : place + a_round]
                if shifts:
                    _work(these)
                else:
                    for one in these:
                        one.gate.open()
                for one in these:
                    yield one.process.wait()


def _work(begun: Sequence[WaitingProcess]) -> None:
    """Let the processes of a round work in shifts, one after the other, until each has ended.

    The order is always the same, because a process that works twice in a row would find its data in the caches. An
    effect within one shift is balanced by the next round, whose order is reversed. The order of the first round is
    drawn at random (compare/sides.py).
    """
    for one in begun:
        one.gate.open()
        one.going = one.foreman.over(one.process)
    while any(one.going for one in begun):
        for one in begun:
            if one.going:
                one.foreman.go()
                one.going = one.foreman.over(one.process)


@contextmanager
def _begun(
    words: Sequence[str],
    starter: ProcessStarter,
    waiting: bool,
    by_shifts: bool,
    to: BinaryIO | None,
    more: Mapping[str, str] | None = None,
) -> Iterator[WaitingProcess]:
    """Yield a started process; waiting: it waits for its turn; by_shifts: it works in shifts; to: where it prints.

    more: further variables of its environment.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(gpu_slots.TurnGate(Path(folder))) as gate,
        closing(time_slicing.ShiftGiver()) as foreman,
    ):
        shift = foreman.variables if by_shifts else {}
        variables = {**(gate.variables if waiting else {}), **shift, **(more or {})}
        process = starter.start(words, variables, to, time_slicing.SHIFT if by_shifts else "")
        try:
            yield WaitingProcess(process, gate, foreman)
        finally:
            process.kill()
            process.wait()


def join_steps(given: Sequence[tuple[str, Path]], to: Path) -> int:
    """Join the step tables of processes into one CSV with a side per row; returns the number of rows.

    A column that some of them lack, such as times of tokens, is empty in their rows.
    """
    headings = []
    for _, path in given:
        with path.open(newline="") as steps:
            headings.append(next(csv.reader(steps)))
    names = [*COLUMNS, *dict.fromkeys(name for heading in headings for name in heading)]
    count = 0
    with to.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        for process, (side, path) in enumerate(given):
            own = dict(zip(COLUMNS, (side, process), strict=True))
            with path.open(newline="") as steps:
                for row in csv.DictReader(steps):
                    writer.writerow(own | row)
                    count += 1
    return count


def summarize_processes(
    sides: Sequence[str], facts: "Sequence[Sidecar]", steps: int, baseline: str | None = None
) -> dict[str, Any]:
    """Return the sidecar of all processes: facts of one, `steps` of all, and `processes` with the facts of each.

    baseline: side whose first process provides the facts; None for the very first process.
    """
    each = [{"side": side, **own} for side, own in zip(sides, facts, strict=True)]
    counts = [own.get("items", 0) for own in facts]
    return {
        **facts[0 if baseline is None else list(sides).index(baseline)],
        "steps": steps,
        "items": None if None in counts else sum(filter(None, counts)),
        "processes": each,
    }


def find_difference(sides: Sequence[str], facts: "Sequence[Sidecar]") -> str | None:
    """Describe a difference between processes of one side, which had equal settings; None if there is none."""
    first: dict[str, Mapping[str, Any]] = {}
    other: Mapping[str, Any]
    for side, other in zip(sides, facts, strict=True):
        one = first.setdefault(side, other)
        # What equal settings make equal.
        for key in ("batch", "device", "torch", "parameters"):
            if one.get(key) != other.get(key):
                return f"processes of one side differ in {key}: {one.get(key)} and {other.get(key)}"
    return None


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Return what this module knows of the command line, and the rest, which is for each process."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.experiments.interleaved_runs", description=__doc__)
    parser.add_argument(
        "--rounds", type=json.loads, required=True, help="JSON: pairs of a side and its command's words"
    )
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--memory", type=Path, help="where the first process says what it holds in memory")
    parser.add_argument("--numerics", action="store_true", help="what the first process of each side is told")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    parser.add_argument("--at-once", type=int, default=1, help="processes that may start side by side")
    parser.add_argument("--baseline", help="side whose first process the facts of all are of, not the first of all")
    parser.add_argument("--by-shifts", type=int, default=0, help="processes of a round, if these may work by shifts")
    parser.add_argument("--fork", action="store_true", help="fork processes from one that has imported what they need")
    parser.add_argument("--most", type=int, default=0, help="repeat the rounds until they decide, at most so many")
    parser.add_argument("--until", type=json.loads, help="with --most: JSON of a StopRule")
    return parser.parse_known_args(arguments)


@dataclass
class Interleaved:
    """Processes that run in turn, and what they leave; facts and steps: of those that have ended, in order."""

    options: argparse.Namespace
    more: Sequence[str]
    folder: Path
    starter: ProcessStarter
    steps: list[tuple[str, Path]] = field(default_factory=list)
    facts: "list[Sidecar]" = field(default_factory=list)

    @property
    def beside(self) -> bool:
        """Whether the processes of a round run at once."""
        return bool(self.options.by_shifts) and can_run_at_once([*dict(self.options.rounds).values()])

    def run(self, given: Sequence[tuple[str, Sequence[str]]], expected: int) -> int:
        """Run these sides' commands; returns the exit code. expected: number of processes in all, to be told."""
        first = len(self.steps)
        steps = [(side, self.folder / f"{number}.csv") for number, (side, _) in enumerate(given, first)]
        commands = [
            [*words, *self.more, "--steps", str(own), "--facts", str(own.with_suffix(".json"))]
            for (_, words), (_, own) in zip(given, steps, strict=True)
        ]
        sides, earlier = [side for side, _ in given], {side for side, _ in self.steps}
        for side in dict.fromkeys(sides) if self.options.numerics else ():
            if side not in earlier:
                commands[sides.index(side)].append("--numerics")
        if self.options.memory and not first:
            commands[0] += ["--memory", str(self.options.memory)]
        if self.options.most and self.options.by_shifts and runs_on_cpu(commands):
            commands = lengthen_windows(commands, LEAST_S, self.beside)
        forked = [{"forked": True} if self.starter.prepare(words) else {} for words in commands]
        shifts, at_once = self.options.by_shifts, self.options.at_once
        with closing(run_in_turn(commands, at_once, (), shifts, self.starter, self.beside)) as codes:
            for number, code in enumerate(codes, first + 1):
                if code:
                    whose = given[number - first - 1][0] or "the cell"
                    print(f"process {number} of {expected}, of {whose}, failed", file=sys.stderr)
                    return code if code > 0 else SIGNALLED - code
        self.steps += steps
        each = {"beside": shifts} if self.beside else {}
        self.facts += [
            json.loads(own.with_suffix(".json").read_text()) | each | how
            for (_, own), how in zip(steps, forked, strict=True)
        ]
        return 0

    def run_until_decided(self) -> tuple[int, Rounds]:
        """Run rounds until they decide or further ones are not worth their time; returns the exit code, and the rounds.

        The given rounds are repeated in their order.
        """
        given, width = self.options.rounds, len({side for side, _ in self.options.rounds})
        rounds = Rounds(self.options.until, self.options.baseline or given[0][0])
        for number in range(self.options.most):
            began, first = time.monotonic(), number * width % len(given)
            if code := self.run(given[first : first + width], self.options.most * width):
                return code, rounds
            batches = [count_samples(own) for own in self.facts[-width:]]
            names, paths = zip(*self.steps[-width:], strict=True)
            rounds.add(read_round(names, paths, batches), time.monotonic() - began)
            if rounds.why_end():
                break
        return 0, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code, that of the first process that fails."""
    job_child.enter_job()
    options, more = _options(arguments)
    with tempfile.TemporaryDirectory() as folder, closing(ProcessStarter(options.fork)) as starter:
        runs, ended = Interleaved(options, more, Path(folder), starter), {}
        if options.most:
            code, rounds = runs.run_until_decided()
            ended = {"ended": rounds.why_end() or MOST, "round_s": round(rounds.round_s, 3)}
        else:
            code = runs.run(options.rounds, len(options.rounds))
        if code:
            return code
        sides, facts = [side for side, _ in runs.steps], runs.facts
        if why := find_difference(sides, facts):
            print(f"profzoo: {why}", file=sys.stderr)
            return 2
        if width := options.by_shifts or (len(set(sides)) if options.most else 0):
            facts = [{**own, "round": number // width} for number, own in enumerate(facts)]
        found = summarize_processes(sides, facts, join_steps(runs.steps, options.steps), options.baseline)
    options.facts.write_text(json.dumps(found | ended) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
