"""intervals, against the same done with sets of whole numbers."""

import numpy as np
import pytest

from profzoo.tools.nsys.events import intervals

EMPTY = np.empty((0, 2), dtype=np.int64)


def points(spans: np.ndarray) -> set[int]:
    """The whole numbers that intervals cover."""
    return {point for start, end in spans.tolist() for point in range(start, end)}


def drawn(random: np.random.Generator) -> np.ndarray:
    """Some intervals in any order, overlapping, touching, of any length, zero too."""
    starts = random.integers(0, 60, random.integers(0, 12))
    return np.column_stack((starts, starts + random.integers(0, 9, len(starts))))


def tidy(spans: np.ndarray) -> bool:
    """Sorted, none empty, none overlapping or touching."""
    return bool((spans[:, 0] < spans[:, 1]).all() and (spans[1:, 0] > spans[:-1, 1]).all())


@pytest.mark.parametrize("seed", range(20))
def test_as_sets_of_points(seed: int) -> None:
    random = np.random.default_rng(seed)
    raw = drawn(random), drawn(random)
    first, second = (intervals.union(spans) for spans in raw)
    assert tidy(first) and points(first) == points(raw[0]) and intervals.total(first) == len(points(first))
    both, either, rest = intervals.intersect(first, second), intervals.union(*raw), intervals.subtract(first, second)
    assert points(both) == points(first) & points(second) and intervals.total(both) == len(points(both))
    assert points(either) == points(first) | points(second) and tidy(either)
    assert points(rest) == points(first) - points(second) and intervals.total(rest) == len(points(rest))


def test_nothing_is_an_interval_too() -> None:
    one = np.array([[1, 5]])
    assert intervals.total(EMPTY) == 0 and len(intervals.union(EMPTY, EMPTY)) == 0
    assert len(intervals.intersect(one, EMPTY)) == len(intervals.subtract(EMPTY, one)) == 0
    assert intervals.subtract(one, EMPTY).tolist() == [[1, 5]]


def test_what_only_touches_has_nothing_in_common() -> None:
    one, around = np.array([[10, 20]]), np.array([[0, 10], [20, 30]])
    assert intervals.intersect(one, around).tolist() == intervals.intersect(around, one).tolist() == []
    assert intervals.intersect(one, np.array([[0, 11], [19, 30]])).tolist() == [[10, 11], [19, 20]]
    assert intervals.subtract(one, around).tolist() == [[10, 20]]
    assert intervals.subtract(around, np.array([[0, 5], [8, 22], [30, 40]])).tolist() == [[5, 8], [22, 30]]
    assert intervals.union(np.array([[10, 20], [5, 5]]), around).tolist() == [[0, 30]]
