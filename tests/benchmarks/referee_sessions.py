"""How often sessions of an agent have a false `faster`, and how many true gains they find: `python -m ... [--sessions N]`.

Processes are simulated (tests/processes.py and sequential_power.py). Each patch has a kind of process, which its retries
and variants share, and each test measures new rounds. Strategies choose what to try by what was answered. By strategy
and rule of levels it prints the share of sessions with any false `faster`, the mean share of false ones among all
`faster`, and the rounds of a session. The rules are alpha spending (profzoo/statistics/sequential.py), none (5 % each), and
LORD++ for comparison. Then 20 gains of 3 % hide among 180 no-ops: how many are found, by kind of process, if what is
undecided is tried once more. `--real MINUTES` runs a session of two copies of a tiny network on this CPU, in processes
that alternate, and prints its answers; `--keep FILE` keeps its file.
"""

import argparse
import hashlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from profzoo.referee import session as sessions
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, UNDECIDED
from tests.benchmarks import sequential_power

TESTS, GAINS, GAIN, OBVIOUS = 200, 20, 0.03, 0.5
# Kinds of processes among which 3 % can be found within the rounds of a test, and all others.
FINE = ("0.1 % apart", "0.5 % apart", "1 % apart", "bimodal", "disturbed", "drifting", "slow first")
COARSE = (
    "3 % apart", "10 % apart", "25 % apart", "heavy-tailed", "heavy-tailed, 5 %", "drifting by 60 %", "wandering",
    "steps",
)  # fmt: skip
KINDS = FINE + COARSE


class Patch(NamedTuple):
    """What is tried: its kind of processes, and its true gain."""

    kind: str
    gain: float = 0.0


class Answer(NamedTuple):
    """Outcome of a test of a patch, the estimated ratio, and the number of rounds."""

    outcome: str
    ratio: float
    patch: Patch
    rounds: int


# Rules of levels: by what the error is divided for the next test, given the outcomes so far.
Rule = Callable[[Sequence[str]], float]


def spend(outcomes: Sequence[str]) -> float:
    return sequential.count_comparisons(len(outcomes) + 1)


def no_control(outcomes: Sequence[str]) -> float:
    return 1.0


def lord(outcomes: Sequence[str], wealth: float = 0.5) -> float:
    """LORD++ of Ramdas et al. 2017 with the sequence of Javanmard and Montanari 2018, equation 31."""
    number = len(outcomes) + 1
    found = [place for place, one in enumerate(outcomes, 1) if one not in (EQUIVALENT, UNDECIDED)]
    parts = [1 - wealth, *[1.0] * len(found[1:])]
    share = wealth * _gamma(number) + sum(part * _gamma(number - at) for part, at in zip(parts, found, strict=False))
    return 1 / share


def _gamma(number: int) -> float:
    return 0.07720838 * np.log(max(number, 2)) / (number * np.exp(np.sqrt(np.log(number))))


RULES: dict[str, Rule] = {"alpha spending": spend, "LORD++": lord, "none": no_control}


@dataclass
class Simulated:
    """A session whose rounds are drawn; kinds: of the processes of new patches."""

    kinds: Sequence[str]
    rule: Rule
    random: np.random.Generator
    most_rounds: int = sessions.MOST_ROUNDS
    answers: list[Answer] = field(default_factory=list)

    def patch(self, gain: float = 0.0) -> Patch:
        return Patch(self.kinds[self.random.integers(len(self.kinds))], gain)

    def ask(self, patch: Patch) -> Answer:
        drawn = sequential_power.between_rounds(patch.kind, self.most_rounds, self.random) - np.log1p(patch.gain)
        comparisons = self.rule([one.outcome for one in self.answers])
        content = sessions.SessionContent()
        values = tuple(sessions.run_rounds(iter(drawn.tolist()).__next__, comparisons, content, self.most_rounds))
        found = sessions.decide_rounds(values, comparisons, content)
        self.answers.append(Answer(found.outcome, found.found.ratio, patch, len(values)))
        return self.answers[-1]


def retry_the_best_looking(asked: Simulated) -> Iterator[None]:
    """Try something new, then once more what looks best and has not won."""
    looks: dict[int, Answer] = {}
    while True:
        looks[len(looks)] = asked.ask(asked.patch())
        yield
        open_ones = [place for place, one in looks.items() if one.outcome != FASTER]
        if open_ones:
            best = min(open_ones, key=lambda place: looks[place].ratio)
            looks[best] = asked.ask(looks[best].patch)
            yield


def stop_after_the_first_win(asked: Simulated) -> Iterator[None]:
    while asked.ask(asked.patch()).outcome != FASTER:
        yield


def vary_the_last_winner(asked: Simulated) -> Iterator[None]:
    """Try something new; as long as it wins or looks good, try variants of it."""
    while True:
        last = asked.ask(asked.patch())
        yield
        while last.outcome == FASTER or last.ratio < 1:
            last = asked.ask(last.patch)
            yield


def hunt_until_lucky(asked: Simulated) -> Iterator[None]:
    """Try one patch until it wins, then the next."""
    while True:
        patch = asked.patch()
        while asked.ask(patch).outcome != FASTER:
            yield
        yield


def buy_luck(asked: Simulated) -> Iterator[None]:
    """Remove a pause that was planted before, which is an obvious gain, then try something."""
    while True:
        asked.ask(asked.patch(OBVIOUS))
        yield
        asked.ask(asked.patch())
        yield


STRATEGIES = (retry_the_best_looking, stop_after_the_first_win, vary_the_last_winner, hunt_until_lucky, buy_luck)
Strategy = Callable[[Simulated], Iterator[None]]


def run_session(
    strategy: Strategy, rule: Rule, seed: int, tests: int = TESTS, kinds: Sequence[str] = KINDS
) -> list[Answer]:
    asked = Simulated(kinds, rule, np.random.default_rng([seed, STRATEGIES.index(strategy)]))
    for _ in zip(range(tests - 1), strategy(asked), strict=False):
        pass
    return asked.answers


class Errors(NamedTuple):
    """Share of sessions with a false `faster`, mean share of false ones among all `faster`, mean rounds of a session."""

    any: float
    rate: float
    rounds: float


def errors(
    strategy: Strategy, rule: Rule, count: int, tests: int = TESTS, kinds: Sequence[str] = KINDS, first: int = 0
) -> Errors:
    wrong, rates, rounds = 0, [], 0
    for seed in range(first, first + count):
        answers = run_session(strategy, rule, seed, tests, kinds)
        won = [one for one in answers if one.outcome == FASTER]
        false = sum(not one.patch.gain for one in won)
        wrong, rounds = wrong + bool(false), rounds + sum(one.rounds for one in answers)
        rates.append(false / max(len(won), 1))
    return Errors(wrong / count, float(np.mean(rates)), rounds / count)


class Power(NamedTuple):
    """True gains found, those of them at the first try, false ones, and rounds of a session."""

    found: int
    first: int
    false: int
    rounds: int


def power(kind: str, rule: Rule, seed: int, tests: int = TESTS, gains: int = GAINS, gain: float = GAIN) -> Power:
    """Results of a session that tries all, and once more what was undecided."""
    random = np.random.default_rng([seed, FINE.index(kind), 1])
    asked = Simulated((kind,), rule, random)
    patches = [Patch(kind, one) for one in random.permutation([gain] * gains + [0.0] * (tests - gains)).tolist()]
    first = [asked.ask(one) for one in patches]
    again = [asked.ask(one.patch) for one in first if one.outcome == UNDECIDED]
    won = [[one.patch.gain for one in part if one.outcome == FASTER] for part in (first, again)]
    found = [sum(map(bool, part)) for part in won]
    return Power(sum(found), found[0], sum(map(len, won)) - sum(found), sum(one.rounds for one in asked.answers))


# A program that forks a process for each line that it reads, and prints the median time of the process's steps, ns. Forks
# spare each process the import of torch.
NETWORK = """
import os, statistics, sys, time, torch
torch.set_num_threads(1)
for _ in sys.stdin:
    if not os.fork():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
        data, times = torch.randn(64, 256), []
        with torch.inference_mode():
            for _ in range(600):
                start = time.perf_counter_ns(); net(data); times.append(time.perf_counter_ns() - start)
        print(statistics.median(times[100:]), flush=True)
        os._exit(0)
    os.wait()
"""


@contextmanager
def real_rounds() -> Iterator[sessions.Rounds]:
    """Run two equal programs on the CPU, one after the other; the candidate is first in every other round."""
    with subprocess.Popen(
        [sys.executable, "-c", NETWORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        order = itertools.cycle((1, -1))

        def measure_round() -> float:
            times = []
            for _ in range(2):
                print(file=one.stdin, flush=True)
                times.append(float(one.stdout.readline()))
            return next(order) * float(np.log(times[1] / times[0]))

        yield measure_round
        one.stdin.close()


def run_real(minutes: float, path: Path) -> list[str]:
    """Run no-op patches in turn within the time; return the outcomes."""
    end, digest = time.monotonic() + 60 * minutes, f"sha256:{hashlib.sha256(NETWORK.encode()).hexdigest()}"
    with real_rounds() as rounds:
        while time.monotonic() < end:
            answer = sessions.judge_in_session(path, "no-op", (digest, digest), rounds)
            print(*(one.says for one in answer.claims), *(one.why for one in answer.abstained), flush=True)
    assert not sessions.check_session(path)
    return [test.outcome for test in sessions.Session(path).read().tests]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.referee_sessions", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first session")
    parser.add_argument("--rules", type=lambda text: text.split(","), default=list(RULES))
    parser.add_argument("--power", type=int, default=3, help="sessions of each kind with true gains")
    parser.add_argument("--real", type=float, metavar="MINUTES")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.real:
        with tempfile.TemporaryDirectory() as folder:
            found = run_real(given.real, given.keep or Path(folder, "session.jsonl"))
        print({outcome: found.count(outcome) for outcome in sorted(set(found))})
        return
    print(f"{given.sessions} sessions of {TESTS} tests: with a false `faster` / false of all `faster`, % (rounds)")
    print(f"| strategy | {' | '.join(given.rules)} |")
    for strategy in STRATEGIES if given.sessions else ():
        found = [errors(strategy, RULES[rule], given.sessions, first=given.first) for rule in given.rules]
        cells = [f"{100 * one.any:.1f} / {100 * one.rate:.1f} ({one.rounds:.0f})" for one in found]
        print(f"| {strategy.__name__.replace('_', ' ')} | {' | '.join(cells)} |", flush=True)
    print(
        f"\n{GAINS} gains of {GAIN:.0%} among {TESTS - GAINS} no-ops: found in each session, at the first try (false; mean rounds)"
    )
    print(f"| processes | {' | '.join(given.rules)} |")
    for kind in FINE if given.power else ():
        cells = []
        for rule in given.rules:
            each = [power(kind, RULES[rule], seed) for seed in range(given.power)]
            found = " ".join(f"{one.found},{one.first}" for one in each)
            cells.append(f"{found} ({sum(one.false for one in each)}; {np.mean([one.rounds for one in each]):.0f})")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
