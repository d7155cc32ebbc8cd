"""Arithmetic on sets of intervals: arrays (n, 2) of int64, start and end in ns, sorted and without overlap."""

import numpy as np


def union(*parts: np.ndarray) -> np.ndarray:
    """Return the time covered by any part; parts: arrays (n, 2) in any order, overlapping or empty."""
    spans = np.concatenate([np.asarray(part, dtype=np.int64).reshape(-1, 2) for part in parts])
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    begins = np.concatenate(([True], spans[1:, 0] > reached[:-1]))
    return np.column_stack((spans[begins, 0], reached[np.append(begins[1:], True)]))


def total(spans: np.ndarray) -> int:
    """Return the total length in ns."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def covered_ns(spans: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return how many ns of each interval the spans cover.

    Args:
        spans: start and end in ns, shape (spans, 2); they may overlap and have any order.
        starts, ends: start and end of each interval in ns, shape (intervals,).

    Returns: ns, shape (intervals,); 0 for an interval that ends before it starts.

    >>> covered_ns(np.array([[10, 20], [15, 30]]), np.array([0, 25]), np.array([12, 100]))
    array([2, 5])
    """
    merged = union(spans)
    if not len(merged):
        return np.zeros(len(starts), dtype=np.int64)
    edges = merged.ravel()
    sums = np.concatenate(([0], np.cumsum(np.where(np.arange(len(edges) - 1) % 2 == 0, np.diff(edges), 0))))
    upto = [np.interp(times, edges, sums) for times in (starts, ends)]
    return np.maximum(upto[1] - upto[0], 0).round().astype(np.int64)


def find_open(moments: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return, per moment, the position of the interval in which it lies; -1 if in none.

    starts, ends: start and end of intervals in ns, by start. They do not overlap, so the last one that began before is
    the only candidate.

    >>> find_open(np.array([5, 10, 15, 20]), np.array([10, 18]), np.array([15, 30])).tolist()
    [-1, 0, -1, 1]
    """
    last = np.searchsorted(starts, moments, side="right") - 1
    return np.where((last >= 0) & (moments < np.append(ends, 0)[last]), last, -1)


def subtract(spans: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return the time that the first set covers and the second does not."""
    if not len(spans) or not len(away):
        return spans
    return intersect(spans, _complement(away, int(spans[0, 0]), int(spans[-1, 1])))


def intersect(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the time that both sets cover."""
    if not len(first) or not len(second):
        return np.empty((0, 2), dtype=np.int64)
    # An interval of `first` meets the intervals of `second` that end after its begin and begin before its end.
    low = np.searchsorted(second[:, 1], first[:, 0], side="right")
    high = np.searchsorted(second[:, 0], first[:, 1], side="left")
    counts = np.maximum(high - low, 0)
    mine = np.repeat(np.arange(len(first)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    theirs = np.repeat(low, counts) + offsets
    starts = np.maximum(first[mine, 0], second[theirs, 0])
    return np.column_stack((starts, np.minimum(first[mine, 1], second[theirs, 1])))


def _complement(spans: np.ndarray, start: int, end: int) -> np.ndarray:
    gaps = np.column_stack((np.append(start, spans[:, 1]), np.append(spans[:, 0], end)))
    return gaps[gaps[:, 1] > gaps[:, 0]]
