"""How sure a comparison is: `python -m tests.benchmarks.compare_power [--sides A,B] ROUNDS.csv [...]`.

Takes the medians of recorded processes that ran in turn and did the same (those of `--sides`, or all), draws comparisons
from them, and prints how often a comparison of the same thing is called different, and how often one that is slower is
found, by the number of processes a side. Processes are drawn in runs of neighbours, so that a drift stays what it was.
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


def called(
    given: Sequence[np.ndarray], count: int, slower: float, draws: int, random: np.random.Generator
) -> dict[str, float]:
    """The share of each verdict; given: medians of the processes of cells, each twice as many as count or more."""
    said: dict[str, int] = {}
    order = np.array(interleaved(["baseline", "candidate"], count))
    for _ in range(draws):
        cell = given[random.integers(len(given))]
        first = int(random.integers(len(cell) - 2 * count + 1))
        drawn = cell[first : first + 2 * count]
        one, other = drawn[order == "baseline"], drawn[order == "candidate"] * (1 + slower)
        (verdict,) = inference.verdicts([inference.ratio(one, other, paired=True)])
        said[verdict] = said.get(verdict, 0) + 1
    return {verdict: number / draws for verdict, number in said.items()}


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare_power", description=__doc__)
    parser.add_argument("rounds", nargs="+", metavar="CSV")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--sides", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    given, random = [medians(path, options.sides) for path in options.rounds], np.random.default_rng(0)
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
