"""Alignment of two sequences: against all best alignments by hand, and where chance would make pairs."""

import itertools
import tracemalloc
from functools import cache

import numpy as np
import pytest

from profzoo.launches import alignment
from profzoo.launches.alignment import NONE, align

Pairs = frozenset[tuple[tuple[int, int], ...]]


def best_alignments(first: tuple[int, ...], second: tuple[int, ...]) -> Pairs:
    """All alignments with the fewest gaps, each as its pairs, one by one."""

    @cache
    def edits(x: int, y: int) -> int:
        if x == len(first) or y == len(second):
            return len(first) - x + len(second) - y
        best = 1 + min(edits(x + 1, y), edits(x, y + 1))
        return min(best, edits(x + 1, y + 1)) if first[x] == second[y] else best

    @cache
    def every(x: int, y: int) -> Pairs:
        if x == len(first) and y == len(second):
            return frozenset([()])
        found: set[tuple[tuple[int, int], ...]] = set()
        if x < len(first) and y < len(second) and first[x] == second[y] and edits(x + 1, y + 1) == edits(x, y):
            found |= {((x, y), *rest) for rest in every(x + 1, y + 1)}
        if x < len(first) and edits(x + 1, y) + 1 == edits(x, y):
            found |= every(x + 1, y)
        if y < len(second) and edits(x, y + 1) + 1 == edits(x, y):
            found |= every(x, y + 1)
        return frozenset(found)

    return every(0, 0)


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_what_all_best_alignments_have_is_aligned_and_nothing_else(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "CHANCE", np.inf)
    random = np.random.default_rng(kinds)
    for _ in range(60):
        first, second = (random.integers(0, kinds, random.integers(0, 9)) for _ in range(2))
        found, every = align(first, second), best_alignments(tuple(first), tuple(second))
        certain = set.intersection(*map(set, every))
        assert {(x, int(y)) for x, y in enumerate(found.partner) if y != NONE} == certain
        assert {(int(x), y) for y, x in enumerate(found.of_second) if x != NONE} == certain
        assert found.edits == len(first) + len(second) - 2 * len(next(iter(every)))


@pytest.mark.slow
def test_a_hundred_thousand_launches_take_little_memory() -> None:
    """250 repeats of a block, as layers are, with 200 launches left out here and there."""
    random = np.random.default_rng(0)
    launches = np.tile(random.integers(0, 60, 400), 250)
    left_out = np.sort(random.choice(len(launches), 200, replace=False))
    tracemalloc.start()
    found = align(launches, np.delete(launches, left_out))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = np.delete(np.arange(len(launches)), left_out)
    paired = found.of_second != NONE
    assert found.edits == 200 and (found.of_second[paired] == kept[paired]).all() and paired.mean() > 0.999
    assert most < 100 * 2**20


def test_what_stands_between_pairs() -> None:
    found = align(np.array([1, 2, 3, 4]), np.array([1, 3, 4, 5]))
    assert found.partner.tolist() == [0, NONE, 1, 2] and found.of_second.tolist() == [0, 2, 3, NONE]
    assert [gaps.tolist() for gaps in found.gaps] == [[0, 1, 1, 2], [0, 1, 2, 3]]
    same = align(np.array([4, 4]), np.array([4, 4]))
    assert same.edits == 0 and same.partner.tolist() == same.of_second.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("first", "second", "most", "edits"),
    [("abcde", "ac", 3, 3), ("abcde", "ac", 2, NONE), ("abc", "xyz", 6, 6), ("abc", "xyz", 5, NONE), ("", "ab", 2, 2),
     ("ab", "", 1, NONE), ("axb", "ayb", 2, 2), ("axb", "ayb", 1, NONE), ("axb", "ayb", 0, NONE)],
)  # fmt: skip
def test_no_more_edits_than_are_allowed(first: str, second: str, most: int, edits: int) -> None:
    found = align(*(np.array([ord(one) for one in text], dtype=np.int64) for text in (first, second)), most)
    assert found.edits == edits and len(found.partner) == len(first)
    if edits == NONE:
        assert (found.partner == NONE).all() and (found.of_second == NONE).all()


def around(run: list[int], before: tuple[int, int], after: tuple[int, int], length: int) -> tuple[np.ndarray, ...]:
    """Two sequences of so many launches together, both of which have the run between launches that they share.

    before, after: how many launches either alone has before the run and behind it.
    """
    alone = iter(range(10_000, 20_000))
    shared = length - sum(before) - sum(after) - 2 * len(run)
    assert shared % 4 == 0
    head, tail = [*range(1000, 1000 + shared // 4)], [*range(5000, 5000 + shared // 4)]
    return tuple(
        np.array([*head, *itertools.islice(alone, before[own]), *run, *itertools.islice(alone, after[own]), *tail])
        for own in range(2)
    )


@pytest.mark.parametrize(
    ("run", "before", "after", "length", "said"),
    [
        # One launch, 2 of the N in both: at 3 x 3 places, 18 / N is below a hundredth from 1800 on.
        ([7], (1, 1), (1, 1), 1798, False),
        ([7], (1, 1), (1, 1), 1806, True),
        # At (2 + 1 + 1) x (0 + 3 + 1) places: 32 / N, from 3200 on.
        ([7], (2, 0), (1, 3), 3196, False),
        ([7], (2, 0), (1, 3), 3204, True),
        # At (0 + 3 + 1) x (4 + 1 + 1): 48 / N, from 4800 on.
        ([7], (0, 4), (3, 1), 4798, False),
        ([7], (0, 4), (3, 1), 4806, True),
        # Two launches, each with a share of 2 / N, at 4 x 4 places: 64 / N^2 is below it from 80 on.
        ([7, 8], (2, 2), (1, 1), 78, False),
        ([7, 8], (2, 2), (1, 1), 82, True),
        # Two of one kind have each a share of 4 / N: 4 x 4 x 16 / N^2, from 160 on.
        ([7, 7], (2, 2), (1, 1), 158, False),
        ([7, 7], (2, 2), (1, 1), 162, True),
        # As many edits beside it as the run has pairs, or a gap on one side alone: not asked, whatever the chance.
        ([7, 8, 9, 7], (1, 1), (1, 1), 16, True),
        ([7], (3, 3), (0, 0), 24, True),
        ([7], (0, 0), (3, 3), 24, True),
        # One edit on either side, and one pair.
        ([7], (1, 0), (0, 1), 40, False),
        ([7, 8], (1, 0), (0, 1), 18, True),
        ([7], (1, 0), (1, 0), 40, False),
    ],
)
def test_a_run_that_chance_would_make_is_not_said(
    run: list[int], before: tuple[int, int], after: tuple[int, int], length: int, said: bool
) -> None:
    first, second = around(run, before, after, length)
    assert len(first) + len(second) == length and alignment.CHANCE == 0.01
    found = align(first, second)
    places = np.flatnonzero(np.isin(first, run))
    assert (found.partner[places] != NONE).tolist() == [said] * len(run)
    # All that both have around it is said.
    shared = (first >= 1000) & (first < 10_000)
    assert (second[found.partner[shared]] == first[shared]).all() and (found.partner[shared] != NONE).all()
    assert (found.partner[first >= 10_000] == NONE).all() and found.edits == sum(before) + sum(after)


@pytest.mark.parametrize(("shared", "said"), [(397, False), (399, True)])
def test_a_run_at_the_beginning_is_asked_for_too(shared: int, said: bool) -> None:
    """One launch before it in the one run, one behind it in the other: 2 x 2 places, 8 / N, from 800 on."""
    both = range(100, 100 + shared)
    first, second = np.array([7, 1, *both]), np.array([2, 7, *both])
    for found in (align(first, second), align(second, first)):
        assert (found.partner != NONE).sum() == shared + said and found.edits == 2
