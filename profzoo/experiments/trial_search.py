"""Plans which settings trials run next: each setting alone, then combinations of those that helped."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import pairwise
from statistics import geometric_mean, median
from typing import Any

from profzoo.statistics import sequential
from profzoo.statistics.speedup import FASTER, UNDECIDED

# Trials run in rounds with the unchanged cell, every second round in reverse order. Settings are compared within the
# same rounds. Rounds of both directions have equal weight, so that drift affects all alike. If a candidate of several
# settings fails, its settings run alone, and those that work take its place (`find_rest`).
#
# `plan_rounds` runs each setting in a fixed number of rounds. `DecidedSearch` repeats rounds until each setting is
# decided: a round has the unchanged cell, all undecided settings, and at most one combination beside the best one
# before it. A setting leaves the rounds once it is faster, slower or equivalent (profzoo/statistics/sequential.py). A
# combination starts as soon as two settings look faster, so that a short budget suffices for it.

Names = tuple[str, ...]
# Names of the settings of the unchanged cell: none.
BASE: Names = ()
# Settings that are slower than the cell by more than this after ROUNDS rounds are not tried again in fixed rounds.
# Settings help only if they are faster by as much. Decided or not, they look faster after as many rounds.
WORTH, ROUNDS = 0.02, 2
# Times of a data sample in a round, by names of the settings; None if the process failed.
Took = Mapping[Names, float | None]


def plan_rounds(candidates: dict[str, Sequence[str]], repeats: int) -> Generator[list[Names], Took, Names]:
    """Yield the trials of each next round, in order; receive the times of a data sample in the round before.

    Args:
        candidates: setting words by name, the best expected first; what takes the place of failed ones is added.
        repeats: number of processes for settings that are not dropped.

    Returns: the names of the settings that are fastest together.
    """
    done: list[Took] = []
    going: list[Names] = [(name,) for name in candidates]
    while len(done) < repeats or any(count_common_rounds(done, names) < repeats for names in going):
        yield from _round(done, [BASE, *going])
        dropped = 1 + WORTH if len(done) >= ROUNDS else math.inf
        failed = [names for names in going if any_failed(done, names)]
        going = [names for names in going if names not in failed and time_ratio(done, names) <= dropped]
        for names in failed:
            rest = yield from find_rest(done, candidates, names, lambda order: _round(done, order))
            going += [rest] if rest and rest not in going else []
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


def split_settings(name: str, candidates: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the parts of a candidate, by name: other candidates that it contains, and else its single words.

    Words of the batch and of the number of samples, which follows from it, are one part.

    >>> known = {"all": ["batch=8", "graph=true", "samples=80", "workers=2"], "graph": ["graph=true"]}
    >>> split_settings("all", known)
    {'graph': ['graph=true'], 'batch=8 samples=80': ['batch=8', 'samples=80'], 'workers=2': ['workers=2']}
    """
    found, left = dict[str, Sequence[str]](), list(candidates[name])
    for other, words in sorted(candidates.items(), key=lambda one: len(one[1])):
        if words and len(words) < len(candidates[name]) and set(words) <= set(left):
            found[other] = words
            left = [word for word in left if word not in words]
    batch = [word for word in left if word.partition("=")[0] in ("batch", "samples")]
    parts = [*([batch] if batch else []), *([word] for word in left if word not in batch)]
    return found | {" ".join(part): part for part in parts}


def find_rest(
    done: Sequence[Took],
    candidates: dict[str, Sequence[str]],
    failed: Names,
    run: Callable[[list[Names]], Generator[list[Names], Any]],
) -> Generator[list[Names], Any, Names]:
    """Find which parts of a candidate that failed do; yield the rounds that this takes, and return the rest that works.

    Parts that did not run yet run alone. If all of them work, parts are left out one by one until the rest works, those
    first that gain least alone. The result is empty if nothing is left. done: rounds so far; `run`, which runs a round,
    adds to them. candidates: setting words by name; parts and the rest are added.
    """
    parts = split_settings(failed[0], candidates)
    if len(parts) < 2:
        return BASE
    candidates |= parts

    def run_untried(several: Sequence[Names]) -> Generator[list[Names], Any]:
        untried = [names for names in several if names and not any(names in took for took in done)]
        yield from run([BASE, *untried]) if untried else ()

    yield from run_untried([(part,) for part in parts])
    working, rest = [part for part in parts if not any_failed(done, (part,))], BASE
    by_gain = sorted(parts, key=lambda part: -time_ratio(done, (part,)))
    fewer = [[part for part in parts if part != left_out] for left_out in by_gain]
    for kept in fewer if len(working) == len(parts) else [working]:
        words = [word for part in kept for word in parts[part]]
        known = next((other for other, own in candidates.items() if set(own) == set(words)), " ".join(words))
        candidates |= {known: words} if words else {}
        rest = (known,) if words else BASE
        yield from run_untried([rest])
        if not any_failed(done, rest):
            return rest
    return (yield from find_rest(done, candidates, rest, run)) if len(working) < len(parts) else BASE


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
        candidates: dict[str, Sequence[str]],
        margin: float,
        done: Sequence[Took],
        known: sequential.Spread = sequential.ASSUMED,
    ) -> None:
        """Begin without a round.

        Args:
            candidates: setting words by name, the best expected first; what takes the place of failed ones is added.
            margin: largest relative difference that counts as equivalent, such as 0.02.
            done: times of a data sample in each round, by names of the settings; whoever runs the rounds adds to it.
            known: spread of rounds that is known from other processes.
        """
        self._words, self._margin, self.done, self._known = candidates, margin, done, known
        # Settings that are to be decided.
        self._going: list[Names] = [(name,) for name in candidates]
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
        yield [BASE, *self._going]
        yield from self._replace_failed()
        while these := self._next():
            yield from self._run([BASE, *these])
            yield from self._replace_failed()
        return self.find_fastest()

    def _run(self, order: list[Names]) -> Generator[list[Names], object]:
        yield order[::-1] if len(self.done) % 2 else order

    def _replace_failed(self) -> Generator[list[Names], object]:
        """Have the rest of failed settings that works decided in their place."""
        for names in filter(lambda names: any_failed(self.done, names), [*self._going]):
            rest = yield from find_rest(self.done, self._words, names, self._run)
            self._going += [rest] if rest and rest not in self._going else []

    def _next(self) -> list[Names]:
        """Return the settings of the next round, besides the unchanged cell; empty if there is nothing to decide."""
        found = [names for names in self._going if self._is_open(names)]
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
        helping = sorted(filter(self._looks_faster, self._going), key=lambda names: time_ratio(self.done, names))
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
