"""Alignment of two sequences: against all best alignments by hand, and of a recorded step with planted edits."""

import tracemalloc
from functools import cache

import numpy as np
import pandas as pd
import pytest

from profzoo.launches import alignment
from profzoo.launches.alignment import align
from profzoo.launches.myers_diff import NONE
from tests.conftest import DATA

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


@pytest.mark.parametrize("kinds", [1, 2, 3, 6])
def test_what_all_best_alignments_have_is_aligned_and_nothing_else(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "CHANCE", np.inf)
    random = np.random.default_rng(kinds)
    for _ in range(400):
        first, second = (random.integers(0, kinds, random.integers(0, 9)) for _ in range(2))
        found, every = align(first, second), best_alignments(tuple(first), tuple(second))
        certain, some = set.intersection(*map(set, every)), set.union(*map(set, every))
        assert {(x, int(y)) for x, y in enumerate(found.partner) if y != NONE} == certain
        assert {(int(x), y) for y, x in enumerate(found.of_second) if x != NONE} == certain
        for ambiguous, partner, place in ((found.ambiguous, found.partner, 0),
                                          (found.second_ambiguous, found.of_second, 1)):  # fmt: skip
            paired = {pair[place] for pair in some}
            assert [bool(one) for one in ambiguous] == [
                index in paired and like == NONE for index, like in enumerate(partner)
            ]
        assert found.edits == len(first) + len(second) - 2 * len(next(iter(every)))


@pytest.fixture(scope="module")
def step() -> np.ndarray:
    """A recorded training step of U-Net: 345 launches of 56 kinds."""
    table = pd.read_csv(DATA / "launches/unet.train.ncu.csv.gz")
    return table.groupby(["mangled", "grid_x", "grid_y", "grid_z", "block_x"]).ngroup().to_numpy()


def alike(step: np.ndarray, place: int) -> tuple[int, int]:
    """From where to where launches are of one kind with that of the place."""
    begin = end = place
    while begin and step[begin - 1] == step[place]:
        begin -= 1
    while end < len(step) and step[end] == step[place]:
        end += 1
    return begin, end


def test_a_launch_that_one_run_lacks_leaves_all_others_where_they_were(step: np.ndarray) -> None:
    for place in range(0, len(step), 3):
        begin, end = alike(step, place)
        for found in (align(step, np.delete(step, place)), align(np.delete(step, place), step)):
            first = found.partner if len(found.partner) == len(step) else found.of_second
            expected = np.arange(len(step)) - (np.arange(len(step)) > place)
            expected[begin:end] = NONE
            assert (first == expected).all() and found.edits == 1
        # Which of several of a kind it was cannot be said, and of one alone it can.
        assert found.second_ambiguous.sum() == (end - begin if end - begin > 1 else 0)


def test_a_launch_of_another_kind_has_no_like_and_is_between_the_same(step: np.ndarray) -> None:
    for place in range(0, len(step), 3):
        changed = step.copy()
        changed[place] = 1000
        found = align(step, changed)
        assert found.partner[place] == found.of_second[place] == NONE and not found.second_ambiguous[place]
        begin, end = alike(step, place)
        rest = np.delete(np.arange(len(step)), np.arange(begin, end))
        assert (found.partner[rest] == rest).all()
        assert found.gaps[0][place] == found.gaps[1][place]


def test_of_two_launches_that_changed_places_none_is_guessed(step: np.ndarray) -> None:
    tried = 0
    for place in range(1, len(step) - 2):
        around = step[place - 1 : place + 3]
        if len(set(around.tolist())) == 4:
            swapped = step.copy()
            swapped[[place, place + 1]] = step[[place + 1, place]]
            found = align(step, swapped)
            assert (found.partner[[place, place + 1]] == NONE).all() and found.ambiguous[[place, place + 1]].all()
            assert (np.delete(found.partner - np.arange(len(step)), [place, place + 1]) == 0).all()
            tried += 1
    assert tried > 50


def edited(step: np.ndarray, random: np.random.Generator, edits: int) -> tuple[np.ndarray, np.ndarray]:
    """The step with launches left out, put in and changed at random; of each launch where it is now, or NONE."""
    rows = [(int(kind), place) for place, kind in enumerate(step)]
    for _ in range(edits):
        place, kind = random.integers(len(rows)), int(random.choice([random.choice(step), 1000 + random.integers(9)]))
        match random.integers(3):
            case 0:
                rows.pop(place)
            case 1:
                rows.insert(place, (kind, NONE))
            case 2 if kind != rows[place][0]:
                rows[place] = (kind, NONE)
    kinds, origins = np.array(rows).T
    now = np.full(len(step), NONE)
    now[origins[origins != NONE]] = np.flatnonzero(origins != NONE)
    return kinds, now


def test_many_edits_never_make_a_wrong_pair(step: np.ndarray) -> None:
    """But where edits undo each other, so that no sequence could tell: the best alignment has fewer than were made."""
    random, kept, possible, tried = np.random.default_rng(0), 0, 0, 0
    for round_ in range(100):
        other, now = edited(step, random, 1 + round_ % 30)
        found = align(step, other)
        if found.edits == len(step) + len(other) - 2 * (now != NONE).sum():
            paired = found.partner != NONE
            assert (found.partner[paired] == now[paired]).all()
            kept, possible, tried = kept + paired.sum(), possible + (now != NONE).sum(), tried + 1
    assert tried > 60 and kept / possible > 0.95


def test_chance_pairs_of_unlike_stretches_are_not_said(step: np.ndarray) -> None:
    random, said, rest = np.random.default_rng(0), 0, 0.0
    for _ in range(15):
        begin = random.integers(20, len(step) - 140)
        other = step.copy()
        other[begin : begin + 100] = random.choice(step, 100)
        found = align(step, other)
        said += (found.partner[begin + 5 : begin + 95] != NONE).sum()
        outside = np.delete(np.arange(len(step)), np.arange(begin, begin + 100))
        rest += (found.partner[outside] == outside).mean() / 15
    assert said <= 15 * 90 / 100 and rest > 0.95


def test_what_has_too_little_in_common_is_not_aligned() -> None:
    found = align(np.arange(300), np.arange(290, 590), most_edits=400)
    assert found.edits == NONE and (found.partner == NONE).all() and not found.ambiguous.any()


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
