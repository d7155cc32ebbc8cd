"""Plans which settings trials run next until each is decided: those still undecided, and combinations of what helps.

A round has the unchanged cell, all undecided settings, and at most one combination beside the best one before it. A
setting leaves the rounds once it is faster, slower or equivalent (profzoo/statistics/sequential.py). A combination
starts as soon as two settings look faster, without waiting for the others, so that a short budget suffices for it.
"""

import math
from collections.abc import Generator, Mapping, Sequence

from profzoo.experiments.trial_search import (
    BASE,
    WORTH,
    Names,
    Took,
    any_failed,
    changed_keys,
    count_common_rounds,
    time_ratio,
    united_words,
)
from profzoo.statistics import sequential
from profzoo.statistics.speedup import FASTER, UNDECIDED

# A setting looks faster after this many rounds, decided or not.
LOOKS_AFTER = 2


class DecidedSearch:
    """Trials of one cell so far, and what is to run next."""

    def __init__(self, candidates: Mapping[str, Sequence[str]], margin: float, done: Sequence[Took]) -> None:
        """Begin without a round.

        Args:
            candidates: setting words by name, the best expected first.
            margin: largest relative difference that counts as equivalent, such as 0.02.
            done: times of a data sample in each round, by names of the settings; whoever runs the rounds adds to it.
        """
        self._words, self._margin, self.done = candidates, margin, done
        # Combinations that were started, each beside the best one before it.
        self._beside: dict[Names, Names] = {}
        # Settings that cannot be decided in time.
        self.given_up: set[Names] = set()

    def decide(self, names: Names, beside: Names = BASE) -> sequential.Decision:
        """Decide between settings and others, by the rounds in which both ran."""
        pairs = [(took[names], took[beside]) for took in self.done if took.get(names) and took.get(beside)]
        return sequential.decide([math.log(mine / other) for mine, other in pairs if mine and other], self._margin)

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

        Combinations are built by adding each helpful setting once, the fastest first. A setting is left out if the
        combination already sets its key, or if the new combination has been tried under a name of its own.
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
        best, tried = self._best_combination() or helping[0], {frozenset(some) for some in self._words.values()}
        for one in helping:
            both = (*best, *one)
            overlap = changed_keys(self._words, best) & changed_keys(self._words, one)
            added = {names[len(beside) :] for names, beside in self._beside.items()}
            if overlap or one in added or united_words(self._words, both) in tried:
                continue
            self._beside[both] = best
            return [(both, best)]
        return []

    def _best_combination(self) -> Names:
        """Return the last combination that is faster than the one before it; empty if there is none."""
        faster = [both for both, best in self._beside.items() if self._is_faster(both, best)]
        return faster[-1] if faster else ()

    def _is_faster(self, names: Names, beside: Names = BASE) -> bool:
        worth = time_ratio(self.done, names, beside) < 1 - WORTH
        return worth and not any_failed(self.done, names) and self.decide(names, beside).outcome == FASTER

    def _looks_faster(self, names: Names) -> bool:
        enough = count_common_rounds(self.done, names) >= LOOKS_AFTER and not any_failed(self.done, names)
        return enough and time_ratio(self.done, names) < 1 - WORTH

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
