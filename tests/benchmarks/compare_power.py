"""How sure a comparison is: `python -m tests.benchmarks.compare_power [--before] [--sides A,B] [ROUNDS.csv ...]`.

Without files, processes are simulated (tests/processes.py), six kinds of them. By kind and number a side it prints how
often the same thing is called different, how often a candidate that is slower by just the margin is called equivalent,
and how often one that is 3 % slower is found: of processes that run in turn, and of those that work by shifts. A last
table has how often 3 % are found in one cell of 42, and any of 42 that are alike is called different. `--before` prints
the same of the t-tests that were used until issue 37. Seeds are fixed.

With files it takes the medians of recorded processes that ran in turn and did the same (those of `--sides`, or all), and
draws comparisons from them. Processes are drawn in runs of neighbours, so that a drift stays what it was.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from profzoo.compare.sides import interleave
from profzoo.io import csv_tables as reading
from profzoo.statistics import process_repeats, speedup
from profzoo.statistics.speedup import Ratio
from profzoo.tools.time.tables import REPEATED
from tests import processes

REPEATS, SLOWER = (3, 5, 10, 20), (0.0, 0.01, 0.03, 0.10)
# A seed by which the baseline begins.
BASELINE_BEGINS = 4
MARGIN, FOUND, CELLS, RATE = 0.02, 0.03, 42, 0.05
Compare = Callable[..., Ratio]


def medians(path: str, sides: Sequence[str]) -> np.ndarray:
    """Of the processes of these sides of a file, or of all, in their order, ns."""
    steps = reading.read(path, REPEATED)
    steps = steps[steps["side"].isin(sides)] if sides else steps
    return np.array([np.median(times) for times in process_repeats.processes(steps)])


def turn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of so many processes of the baseline, and of the candidate, that run in turn."""
    order = np.array(interleave(["baseline", "candidate"], count, str(seed)))
    return np.flatnonzero(order == "baseline"), np.flatnonzero(order == "candidate")


def before(one: np.ndarray, other: np.ndarray, places: tuple[np.ndarray, np.ndarray], paired: bool = False) -> Ratio:
    """As it was: t by differences of neighbours, or of pairs, with every process for what it took, the baseline first."""
    one, other = np.log(one), np.log(other)
    size = speedup.compare_pairs(one, other)[0] if paired else speedup.compare_neighbours(one, other, *places)
    bound = float(np.log1p(MARGIN))
    different = 2 * min(size.p(0.0, 1), size.p(0.0, -1))
    ends = np.exp(size.interval(0.95))
    return Ratio(float(np.exp(size.middle)), *map(float, ends), different, max(size.p(bound, 1), size.p(-bound, -1)))


def simulated(kind: str, count: int, true: float, seed: int, compare: Compare, shifts: bool = False) -> Ratio:
    """A comparison of simulated processes, of which the candidate's take so much longer."""
    random = np.random.default_rng([seed, count, processes.KINDS.index(kind), shifts])
    draw = processes.by_shifts if shifts else processes.logarithms
    times = np.exp(draw(kind, 2 * count, random))
    # As it was, the baseline began each comparison.
    places = turn(count, BASELINE_BEGINS if compare is before else seed)
    return compare(times[places[0]], times[places[1]] * (1 + true), places, paired=shifts)


def rates(kind: str, count: int, draws: int, compare: Compare, shifts: bool) -> tuple[float, float, float]:
    """Shares of false `different`, of false `equivalent` at the margin, and of 3 % that are found."""
    same, edge, slower = ([simulated(kind, count, true, seed, compare, shifts) for seed in range(draws)]
                          for true in (0.0, MARGIN, FOUND))  # fmt: skip
    return (
        float(np.mean([found.p_different <= RATE for found in same])),
        float(np.mean([found.p_equivalent <= RATE for found in edge])),
        float(np.mean([found.p_different <= RATE and found.ratio > 1 for found in slower])),
    )


def of_zoo(kind: str, count: int, zoos: int, compare: Compare) -> tuple[float, float]:
    """Shares of zoos in which one cell that is 3 % slower is found, and in which any of the others is called different."""
    found = wrong = 0
    for zoo in range(zoos):
        cells = [simulated(kind, count, 0.0 if cell else FOUND, zoo * CELLS + cell, compare) for cell in range(CELLS)]
        first, *others = speedup.decide_outcomes(cells)
        found += first == speedup.SLOWER
        wrong += any(said in (speedup.SLOWER, speedup.FASTER) for said in others)
    return found / zoos, wrong / zoos


def called(
    given: Sequence[np.ndarray], count: int, slower: float, draws: int, random: np.random.Generator
) -> dict[str, float]:
    """The share of each verdict; given: medians of the processes of cells, each twice as many as count or more."""
    said: dict[str, int] = {}
    for draw in range(draws):
        places = turn(count, draw)
        cell = given[random.integers(len(given))]
        first = int(random.integers(len(cell) - 2 * count + 1))
        drawn = cell[first : first + 2 * count]
        one, other = drawn[places[0]], drawn[places[1]] * (1 + slower)
        (verdict,) = speedup.decide_outcomes([speedup.estimate_ratio(one, other, places)])
        said[verdict] = said.get(verdict, 0) + 1
    return {verdict: number / draws for verdict, number in said.items()}


def show(draws: int, compare: Compare, counts: Sequence[int], zoos: int) -> None:
    """Print what is simulated, in per cent."""
    for shifts in (False, True):
        print(f"\n{'by shifts' if shifts else 'in turn'}: false different / false equivalent / found, %")
        for kind in processes.KINDS:
            cells = [" / ".join(f"{100 * one:.1f}" for one in rates(kind, count, draws, compare, shifts))
                     for count in counts]  # fmt: skip
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)
    print(f"\none of {CELLS} found / any of the others called different, %")
    for kind in processes.KINDS:
        cells = [" / ".join(f"{100 * one:.0f}" for one in of_zoo(kind, count, zoos, compare)) for count in counts]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare_power", description=__doc__)
    parser.add_argument("rounds", nargs="*", metavar="CSV")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--zoos", type=int, default=100)
    parser.add_argument("--counts", type=lambda text: [int(one) for one in text.split(",")], default=REPEATS)
    parser.add_argument("--before", action="store_true", help="the t-tests that were used until issue 37")
    parser.add_argument("--sides", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    if not options.rounds:
        show(options.draws, before if options.before else speedup.estimate_ratio, options.counts, options.zoos)
        return 0
    given, random = [medians(path, options.sides) for path in options.rounds], np.random.default_rng(0)
    apart = [float(np.log(cell).std(ddof=1)) for cell in given]
    print(f"{len(given)} cells, processes {min(apart):.2%} to {max(apart):.2%} apart (standard deviation)")
    for count in options.counts:
        usable = [cell for cell in given if len(cell) >= 2 * count]
        for slower in SLOWER if usable else ():
            shares = called(usable, count, slower, options.draws, random)
            print(
                f"{count} a side, {slower:.0%} slower: " + ", ".join(f"{v} {s:.1%}" for v, s in sorted(shares.items()))
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
