"""How often the search for the slower commit is right, and what it costs: `python -m ... [--searches N]`.

Histories of 64 commits have one that takes 3 to 10 % longer. Processes are simulated (tests/processes.py and
sequential_power.py) in the order in which a search runs them. A search is right if its range contains the commit, and
otherwise only commits that do not run. By kind of process and share of commits that do not run, it prints how many are
right and the mean rounds: of the search (profzoo/referee/bisect.py), and of plain bisection, which runs a fixed number
of rounds for each commit against the good one and compares their mean with half of the slowdown.
"""

import argparse
from typing import NamedTuple

import numpy as np

from profzoo.referee import bisect
from tests.benchmarks import sequential_power

COMMITS, SLOWER, BUDGET = 64, (0.03, 0.10), 1500
KINDS = (
    "0.1 % apart", "0.5 % apart", "1 % apart", "bimodal", "disturbed", "drifting", "heavy-tailed", "slow first",
    "wandering",
)  # fmt: skip
BROKEN, FIXED = (0.0, 0.1), (3, 5, 10)


class History(NamedTuple):
    """A history: places of the slower commit and of those that do not run, and the logarithm of the slowdown."""

    culprit: int
    broken: frozenset[int]
    size: float

    def is_right(self, low: int, high: int) -> bool:
        """Whether the change is in (low, high], and nothing else there could have been told apart."""
        return low < self.culprit <= high and all(place in self.broken for place in range(low + 1, high))


def draw_history(random: np.random.Generator, broken: float, commits: int = COMMITS) -> History:
    culprit = int(random.integers(1, commits + 1))
    lost = random.permutation(np.arange(1, commits))[: round(broken * commits)]
    return History(culprit, frozenset(lost.tolist()), float(np.log1p(random.uniform(*SLOWER))))


def simulate(history: History, kind: str, random: np.random.Generator, most: int = 2 * BUDGET) -> bisect.Measure:
    """Rounds of a history's states, whose processes run one after the other; each other round begins with the second."""
    times = sequential_power.logarithms(kind, 2 * most, random).tolist()
    done = 0

    def measure(reference: int, candidate: int) -> float:
        nonlocal done
        for place in (reference, candidate):
            if place in history.broken:
                raise bisect.SkippedError(place, "it does not run")
        first, second = times[2 * done], times[2 * done + 1]
        done += 1
        noise = second - first if done % 2 else first - second
        return noise + history.size * ((candidate >= history.culprit) - (reference >= history.culprit))

    return measure


def bisect_plainly(
    history: History, measure: bisect.Measure, repeats: int, commits: int = COMMITS
) -> tuple[int, int, int]:
    """Places between which plain bisection ends, and its rounds."""
    rounds = repeats

    def mean(place: int) -> float:
        return float(np.mean([measure(0, place) for _ in range(repeats)]))

    half, low, high, lost = mean(commits) / 2, 0, commits, set()
    while inside := [place for place in range(low + 1, high) if place not in lost]:
        place = min(inside, key=lambda one: abs(2 * one - low - high))
        try:
            slow = mean(place) > half
        except bisect.SkippedError:
            lost.add(place)
            continue
        rounds += repeats
        low, high = (low, place) if slow else (place, high)
    return low, high, rounds


class Result(NamedTuple):
    """Number of right searches, of wrong ones that say they are sure, and mean rounds."""

    right: int
    wrong: int
    rounds: float


def rate(kind: str, broken: float, searches: int, repeats: int = 0, seed: int = 0, commits: int = COMMITS) -> Result:
    """Results of the search, or of plain bisection with so many repeats."""
    right, wrong, rounds = 0, 0, []
    for number in range(searches):
        random = np.random.default_rng([seed, number, sequential_power.KINDS.index(kind)])
        history = draw_history(random, broken, commits)
        measure = simulate(history, kind, random)
        if repeats:
            low, high, spent = bisect_plainly(history, measure, repeats, commits)
        else:
            found = bisect.search(commits + 1, measure, BUDGET)
            low, high, spent = found.low, found.high, found.rounds
        right += history.is_right(low, high)
        wrong += not low < history.culprit <= high
        rounds.append(spent)
    return Result(right, wrong, float(np.mean(rounds)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bisect_power", description=__doc__)
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"right of {given.searches} (wrong ranges; mean rounds)")
    print("| processes | do not run | search | " + " | ".join(f"plain, {one} rounds" for one in FIXED) + " |")
    for kind in KINDS:
        for broken in BROKEN:
            found = [rate(kind, broken, given.searches, repeats, given.seed) for repeats in (0, *FIXED)]
            cells = [f"{one.right} ({one.wrong}; {one.rounds:.0f})" for one in found]
            print(f"| {kind} | {broken:.0%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
