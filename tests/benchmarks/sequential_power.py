"""How often rounds that go on until they decide are wrong, and how soon they decide: `python -m ... [--draws N]`.

Processes are simulated (tests/processes.py, and steps of processes below), whose truth is known. Two sides run in turn, there and
back, until profzoo/statistics/sequential.py decides or there have been --rounds rounds. By kind of process and true
difference it prints how often the decision is wrong, how often there is one, after how many rounds in the median, and
how often two rounds were enough. Of `cells that differ`, the spread of each cell is drawn, and three processes of it and
of nine others were timed before; of all other kinds, no spread is known. Wrong is `faster` or `slower` where both sides are the same, `equivalent` where they differ by the margin or more, and
the wrong direction. Another --seed draws others.
"""

import argparse
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED
from tests import processes

MARGIN = 0.02
DIFFERENCES = (0.0, 0.02, 0.03, 0.10, 0.50, 1.0, 1.7, 3.7)
# Kinds of tests/processes.py, each with its scale: processes are 0.5 % apart with 1, 3 % with 6.
SCALED: Mapping[str, tuple[str, float]] = {
    "0.1 % apart": ("steady", 0.2),
    "0.5 % apart": ("steady", 1.0),
    "1 % apart": ("steady", 2.0),
    "3 % apart": ("steady", 6.0),
    "10 % apart": ("steady", 20.0),
    "25 % apart": ("steady", 50.0),
    **{kind: (kind, 1.0) for kind in processes.KINDS if kind != "steady"},
    "drifting by 60 %": ("drifting", 5.0),
    "heavy-tailed, 5 %": ("heavy-tailed", 10.0),
}
# Of neighbouring processes that have a state of the machine in common, and of neighbouring steps.
WANDERING, AUTOCORRELATED = "wandering", "steps"
# The median deviation of processes of a cell, and that of its logarithm between cells.
DIFFER, CELL_DEVIATION, UNLIKE, CELLS, TIMED = "cells that differ", 0.02, 1.0, 9, 3
KINDS = (*SCALED, WANDERING, AUTOCORRELATED, DIFFER)
STEPS, STEP_SPREAD, STEP_CORRELATION, CORRELATION = 20, 0.02, 0.8, 0.7


def autoregressive(count: int, correlation: float, random: np.random.Generator) -> np.ndarray:
    """So many values of standard deviation 1, each of which is like the one before."""
    found = random.normal(0, np.sqrt(1 - correlation**2), count)
    found[0] = random.normal()
    for place in range(1, count):
        found[place] += correlation * found[place - 1]
    return found


def logarithms(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Of the median steps of so many processes that run one after the other and do the same."""
    if kind == WANDERING:
        return 0.01 * autoregressive(count, CORRELATION, random)
    if kind == AUTOCORRELATED:
        each = [np.median(STEP_SPREAD * autoregressive(STEPS, STEP_CORRELATION, random)) for _ in range(count)]
        return np.array(each) + processes.logarithms("steady", count, random)
    steady, scale = SCALED[kind]
    return scale * processes.logarithms(steady, count, random)


def between_rounds(kind: str, rounds: int, random: np.random.Generator) -> np.ndarray:
    """The logarithm of the candidate's over the reference side's time, one value per round, where both do the same."""
    pairs = logarithms(kind, 2 * rounds, random).reshape(rounds, 2)
    direction = np.where((np.arange(rounds) + random.integers(2)) % 2, -1, 1)
    return (pairs[:, 1] - pairs[:, 0]) * direction


def draw_cell(kind: str, rounds: int, random: np.random.Generator) -> tuple[np.ndarray, sequential.Spread]:
    """The same of a cell of this kind, and what is known of its spread."""
    if kind != DIFFER:
        return between_rounds(kind, rounds, random), sequential.ASSUMED
    apart = CELL_DEVIATION * np.exp(UNLIKE * random.normal(size=CELLS + 1))
    own, *others = ((random.normal(size=TIMED) * deviation).tolist() for deviation in apart)
    between = random.normal(size=rounds) * apart[0] * np.sqrt(2)
    return between, sequential.learn_spread(own, others)


class Rates(NamedTuple):
    """Shares of wrong decisions and of decisions, the median number of rounds of these, and their share of two or one."""

    wrong: float
    decided: float
    rounds: float
    soon: float


def decide_in_turn(between: np.ndarray, known: sequential.Spread = sequential.ASSUMED) -> sequential.Decision:
    """The first decision, or the last look."""
    for count in (1, *sequential.LOOKS):
        found = sequential.decide(between[:count].tolist(), MARGIN, known=known)
        if found.outcome != UNDECIDED or count >= len(between):
            return found
    return found


def rates(kind: str, difference: float, draws: int, rounds: int, seed: int = 0) -> Rates:
    """How decisions come out for a candidate that takes so much longer (its ratio less 1)."""
    random, true = np.random.default_rng([KINDS.index(kind), draws, seed]), float(np.log1p(difference))
    cells = (draw_cell(kind, rounds, random) for _ in range(draws))
    found = [decide_in_turn(between + true, known) for between, known in cells]
    wrong = {FASTER, SLOWER} if not difference else {FASTER, EQUIVALENT} if difference >= MARGIN else {FASTER}
    decided = [one.rounds for one in found if one.outcome != UNDECIDED]
    return Rates(
        sum(one.outcome in wrong for one in found) / draws,
        len(decided) / draws,
        float(np.median(decided)) if decided else float("nan"),
        sum(count <= 2 for count in decided) / draws,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sequential_power", description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("wrong / decided, % (median rounds of those; of two or one, %), by how much longer the candidate takes")
    print(f"| processes | {' | '.join(f'{one:.0%}' for one in DIFFERENCES)} |")
    for kind in KINDS:
        found = [rates(kind, one, given.draws, given.rounds, given.seed) for one in DIFFERENCES]
        print(f"| {kind} | " + " | ".join(
            f"{100 * one.wrong:.1f} / {100 * one.decided:.0f} ({one.rounds:.0f}; {100 * one.soon:.0f})" for one in found) + " |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
