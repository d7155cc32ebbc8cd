"""How sure a comparison is: `python -m tests.benchmarks.compare_power [--sides A,B] [ROUNDS.csv ...]`.

Takes the medians of recorded processes that ran in turn and did the same (those of `--sides`, or all), draws comparisons
from them, and prints how often a comparison of the same thing is called different, and how often one that is slower is
found, by the number of processes a side. Processes are drawn in runs of neighbours, so that a drift stays what it was.
Without files, processes are simulated, and it prints how often 3 % are found alone, beside a drift, and among 42 cells.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from profzoo.compare import inference
from profzoo.compare.sides import interleaved
from profzoo.reading import tables as reading
from profzoo.tables import repeats
from profzoo.tools.time.tables import REPEATED

REPEATS, SLOWER = (3, 5, 10), (0.0, 0.01, 0.03, 0.10)


def medians(path: str, sides: Sequence[str]) -> np.ndarray:
    """Of the processes of these sides of a file, or of all, in their order, ns."""
    steps = reading.read(path, REPEATED)
    steps = steps[steps["side"].isin(sides)] if sides else steps
    return np.array([np.median(times) for times in repeats.processes(steps)])


def turn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of so many processes of the baseline, and of the candidate, that run in turn."""
    order = np.array(interleaved(["baseline", "candidate"], count))
    return np.flatnonzero(order == "baseline"), np.flatnonzero(order == "candidate")


def called(
    given: Sequence[np.ndarray], count: int, slower: float, draws: int, random: np.random.Generator
) -> dict[str, float]:
    """The share of each verdict; given: medians of the processes of cells, each twice as many as count or more."""
    said: dict[str, int] = {}
    places = turn(count)
    for _ in range(draws):
        cell = given[random.integers(len(given))]
        first = int(random.integers(len(cell) - 2 * count + 1))
        drawn = cell[first : first + 2 * count]
        one, other = drawn[places[0]], drawn[places[1]] * (1 + slower)
        (verdict,) = inference.verdicts([inference.ratio(one, other, places)])
        said[verdict] = said.get(verdict, 0) + 1
    return {verdict: number / draws for verdict, number in said.items()}


def simulated(apart: float, count: int, drift: float, cells: int, draws: int, random: np.random.Generator) -> float:
    """How often 3 % is found by processes so far apart, one cell of so many that are alike otherwise."""
    places, found = turn(count), 0
    for _ in range(draws):
        times = np.exp(random.normal(0, apart, 2 * count) + np.linspace(0, drift, 2 * count))
        found += inference.ratio(times[places[0]], 1.03 * times[places[1]], places).p_different < 0.05 / cells
    return found / draws


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare_power", description=__doc__)
    parser.add_argument("rounds", nargs="*", metavar="CSV")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    given, random = [medians(path, options.sides) for path in options.rounds], np.random.default_rng(0)
    if not given:
        for apart in (0.005, 0.01, 0.03):
            for count in REPEATS:
                alone, drifting, of_zoo = (simulated(apart, count, *how, options.draws, random)
                                           for how in ((0.0, 1), (0.1, 1), (0.0, 42)))  # fmt: skip
                print(f"{apart:.1%} apart, {count} a side: {alone:.0%}, drifting {drifting:.0%}, of 42 {of_zoo:.0%}")
        return 0
    apart = [float(np.log(cell).std(ddof=1)) for cell in given]
    print(f"{len(given)} cells, processes {min(apart):.2%} to {max(apart):.2%} apart (standard deviation)")
    for count in REPEATS:
        usable = [cell for cell in given if len(cell) >= 2 * count]
        for slower in SLOWER if usable else ():
            shares = called(usable, count, slower, options.draws, random)
            print(
                f"{count} a side, {slower:.0%} slower: " + ", ".join(f"{v} {s:.1%}" for v, s in sorted(shares.items()))
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
