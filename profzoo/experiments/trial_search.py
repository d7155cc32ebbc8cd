"""Plans which settings trials run next: each setting alone, then combinations of those that helped.

Trials run in rounds with the unchanged cell, every second round in reverse order. Settings are compared within the same
rounds. Rounds of both directions have equal weight, so that drift affects all alike.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from statistics import geometric_mean, median

Names = tuple[str, ...]
# Names of the settings of the unchanged cell: none.
BASE: Names = ()
# Settings that are slower than the cell by more than this after ROUNDS rounds are not tried again. Settings help only
# if they are faster by as much.
WORTH, ROUNDS = 0.02, 2
# Times of a data sample in a round, by names of the settings; None if the process failed.
Took = Mapping[Names, float | None]


def plan_rounds(candidates: Mapping[str, Sequence[str]], repeats: int) -> Generator[list[Names], Took, Names]:
    """Yield the trials of each next round, in order; receive the times of a data sample in the round before.

    Args:
        candidates: setting words by name, the best expected first.
        repeats: number of processes for settings that are not dropped.

    Returns: the names of the settings that are fastest together.
    """
    done: list[Took] = []
    going: list[Names] = [(name,) for name in candidates]
    while len(done) < repeats:
        yield from _round(done, [BASE, *going])
        dropped = 1 + WORTH if len(done) >= ROUNDS else math.inf
        going = [names for names in going if not any_failed(done, names) and time_ratio(done, names) <= dropped]
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
    """Return the best combinations, built by adding one helpful setting at a time to the unchanged cell.

    A setting is left out if the combination already sets its key, or if the new combination has been tried under a name
    of its own.
    """
    standing, tried = [BASE], {frozenset(some) for some in words.values()}
    for names in helping:
        best = next((one for one in reversed(standing) if not any_failed(done, one)), BASE)
        both = (*best, *names)
        if changed_keys(words, best) & changed_keys(words, names) or (best and united_words(words, both) in tried):
            continue
        if best:
            yield from _round(done, [BASE, best, both])
        if is_faster(done, both, best):
            standing.append(both)
    return standing


def united_words(words: Mapping[str, Sequence[str]], names: Names) -> frozenset[str]:
    """Return the union of these settings' words."""
    return frozenset(word for name in names for word in words[name])


def changed_keys(words: Mapping[str, Sequence[str]], names: Names) -> set[str]:
    """Return the keys that these settings change."""
    return {word.partition("=")[0] for word in united_words(words, names)}


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
