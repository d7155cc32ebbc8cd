"""Splits the busy time of a GPU by stream, and by what its other streams do at the same moment.

At each moment a stream runs a kernel, or else a copy, or else a memset, or it does nothing. Operations of one stream
that run at the same time, such as kernels of parallel branches of a CUDA graph, count as one. A moment in which the GPU
is busy belongs to exactly one of these cases:

  alone                 one stream is busy
  copy_beside_kernel    a stream copies or sets memory, and another one runs a kernel
  kernel_beside_kernel  several streams run kernels, and none copies
  copy_beside_copy      several streams copy or set memory, and none runs a kernel
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.tools.nsys.events import intervals

KINDS = KERNEL, COPY, MEMSET = ("kernel", "copy", "memset")
CASES = ("alone", "copy_beside_kernel", "kernel_beside_kernel", "copy_beside_copy")
# The clocks of host and GPU differ by microseconds, GPU work may continue after the host's last event, and some traces
# are of whole microseconds.
SKEW_NS, BEHIND_NS, SHORT_NS = 1_000_000, 1_000_000_000, 1000
# So many later ones of its stream none runs over.
TOGETHER = 2
# Name of the row of all streams together.
ALL = "all"
TIMES = ["busy_ns", *(f"{kind}_ns" for kind in KINDS), *(f"{case}_ns" for case in CASES), "part_ns"]
COUNTS = {KERNEL: "kernels", COPY: "copies", MEMSET: "memsets"}
# By kind; the intervals of a stream do not overlap.
Lanes = Mapping[str, np.ndarray]


def tabulate_streams(spans: pd.DataFrame, window: np.ndarray) -> pd.DataFrame:
    """Return one row per stream of one GPU, and last one named ALL; times in ns and counts are sums over the window.

    Args:
        spans: one row per operation: `start` and `end` in ns, `stream`, and `kind`, one of KINDS.
        window: shape (1, 2), begin and end in ns of the time that counts. Operations are cut at both; their number is
            not.

    Columns: `stream` as text, COUNTS and TIMES. In each row the times of KINDS add up to `busy_ns`, and so do those of
    CASES. `part_ns` splits each moment equally among the streams that are busy in it, so that the parts of all streams
    add up to `busy_ns` of ALL. Without operations the table is empty.

    A kernel runs from 0 to 10 ns, and a copy on another stream from 6 to 12 ns:

    >>> spans = pd.DataFrame({"start": [0, 6], "end": [10, 12], "stream": [7, 8], "kind": ["kernel", "copy"]})
    >>> table = tabulate_streams(spans, np.array([[0, 20]]))
    >>> table[["stream", "busy_ns", "alone_ns", "copy_beside_kernel_ns", "part_ns"]].to_numpy().tolist()
    [['7', 10, 6, 4, 8.0], ['8', 6, 2, 4, 4.0], ['all', 12, 8, 4, 12.0]]
    """
    lanes = {stream: _find_lanes(own, window) for stream, own in spans.groupby("stream")}
    moments = _Moments(lanes)
    rows = []
    for stream, own in lanes.items():
        busy = intervals.union(*own.values())
        by_kind = {f"{kind}_ns": intervals.total(own[kind]) for kind in KINDS}
        counts = _count(spans[spans["stream"] == stream])
        rows.append(
            {"stream": str(stream), **counts, "busy_ns": intervals.total(busy), **by_kind, **moments.within(busy)}
        )
    if rows:
        whole = _find_lanes(spans, window)
        by_kind = {f"{kind}_ns": intervals.total(whole[kind]) for kind in KINDS}
        busy = intervals.union(*whole.values())
        rows.append(
            {"stream": ALL, **_count(spans), "busy_ns": intervals.total(busy), **by_kind, **moments.within(busy)}
        )
    table = pd.DataFrame(rows, columns=["stream", *COUNTS.values(), *TIMES])
    # Of all streams together, every moment is theirs.
    table["part_ns"] = table["part_ns"].where(table["stream"] != ALL, table["busy_ns"])
    return table.astype({"part_ns": float})


def time_beside_kernels(copies: pd.DataFrame, spans: pd.DataFrame) -> np.ndarray:
    """Return for each copy how many ns a kernel of another stream ran beside it, shape (copies,).

    copies, spans: one row per operation, with the columns of tabulate_streams.

    >>> spans = pd.DataFrame({"start": [0, 6], "end": [10, 12], "stream": [7, 8], "kind": ["kernel", "copy"]})
    >>> time_beside_kernels(spans[spans["kind"] == "copy"], spans).tolist()
    [4]
    """
    kernels = spans[spans["kind"] == KERNEL]
    found = np.zeros(len(copies), dtype=np.int64)
    for stream in copies["stream"].unique():
        mine = (copies["stream"] == stream).to_numpy()
        others = _union(kernels[kernels["stream"] != stream])
        starts, ends = (copies[name].to_numpy(dtype=np.int64)[mine] for name in ("start", "end"))
        found[mine] = _covered_until(others, ends) - _covered_until(others, starts)
    return found


def find_impossible(
    start: np.ndarray, ns: np.ndarray, called: np.ndarray, queue: np.ndarray, span: int | None
) -> dict[int, str]:
    """Return which operations have times that they cannot have had, by position, and why.

    Operations of a stream run one after another. One that begins early (programmatic dependent launch) still ends
    behind the one before it, so that none runs over several later ones from their begin to their end.

    Args:
        start, ns: of each on the GPU, in ns.
        called: when it was launched, -1 where it is not known.
        queue: number of its stream, -1 where others may run beside it, as branches of a CUDA graph do.
        span: how long the host was traced, in ns, if it was.

    Of five operations one runs over the two behind it, and one has no times:

    >>> start, ns = np.array([10, 20, 30, 40, 0]) * 10_000, np.array([5, 30, 5, 5, 0]) * 10_000
    >>> find_impossible(start, ns, np.full(5, -1), np.zeros(5, dtype=int), None)
    {1: 'runs over 2 that follow it in its stream, 0.000300 s', 4: 'begins and ends at 0'}
    """
    found = dict.fromkeys(np.flatnonzero((start == 0) & (ns == 0)).tolist(), "begins and ends at 0")
    for at in np.flatnonzero(ns < 0).tolist():
        found[at] = f"ends {-ns[at] / 1e6:,.3f} ms before it begins"
    if span is not None:
        for at in np.flatnonzero(ns > span + BEHIND_NS).tolist():
            found[at] = f"lasts {ns[at] / 1e9:,.3f} s, in a trace of {span / 1e9:,.3f} s"
    for at in np.flatnonzero((called >= 0) & (start < called - SKEW_NS)).tolist():
        found.setdefault(at, f"begins {(called[at] - start[at]) / 1e6:,.3f} ms before it is launched")
    sound = np.setdiff1d(np.flatnonzero(queue >= 0), list(found))
    order = sound[np.lexsort((start[sound], queue[sound]))]
    end = start + ns
    for mine in np.split(order, np.flatnonzero(np.diff(queue[order])) + 1):
        follow = np.searchsorted(start[mine], end[mine] - SHORT_NS)
        for place in np.flatnonzero(follow - np.arange(len(mine)) > TOGETHER).tolist():
            later = end[mine[place + 1 : follow[place]]] < end[mine[place]] - SHORT_NS
            if later.sum() >= TOGETHER:
                lasts = f"{ns[mine[place]] / 1e9:,.{3 if ns[mine[place]] >= 1e8 else 6}f} s"
                found[int(mine[place])] = f"runs over {later.sum()} that follow it in its stream, {lasts}"
    return dict(sorted(found.items()))


class _Moments:
    """What the streams of a GPU do at each moment, as sums from the first moment on."""

    def __init__(self, lanes: Mapping[int, Lanes]) -> None:
        """lanes: by stream."""
        kernels = [own[KERNEL] for own in lanes.values()]
        others = [own[kind] for own in lanes.values() for kind in (COPY, MEMSET)]
        times, of_kernels, of_others = _list_changes(kernels, others)
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        lengths = np.diff(self._times)
        kernels_now = np.cumsum(of_kernels[order])[:-1]
        others_now = np.cumsum(of_others[order])[:-1]
        busy = kernels_now + others_now
        cases = {
            "alone": busy == 1,
            "copy_beside_kernel": (kernels_now > 0) & (others_now > 0),
            "kernel_beside_kernel": (kernels_now > 1) & (others_now == 0),
            "copy_beside_copy": (kernels_now == 0) & (others_now > 1),
        }
        self._sums = {f"{case}_ns": _sum_up(lengths * holds) for case, holds in cases.items()}
        self._sums["part_ns"] = _sum_up(lengths / np.maximum(busy, 1) * (busy > 0))

    def within(self, busy: np.ndarray) -> dict[str, float]:
        """Return the time of each case, and `part_ns`, within intervals that begin and end where a stream changes."""
        if not len(busy):
            return dict.fromkeys(self._sums, 0)
        begins, ends = (np.searchsorted(self._times, busy[:, side]) for side in (0, 1))
        return {name: (sums[ends] - sums[begins]).sum().item() for name, sums in self._sums.items()}


def _list_changes(kernels: list[np.ndarray], others: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times in ns, and by how much the numbers of streams with kernels, and with others, change at each."""
    found = []
    for spans, of_kernels in ((kernels, 1), (others, 0)):
        flat = np.concatenate([np.empty((0, 2), dtype=np.int64), *spans])
        for side, change in ((0, 1), (1, -1)):
            found.append(
                (flat[:, side], np.full(len(flat), change * of_kernels), np.full(len(flat), change * (1 - of_kernels)))
            )
    times, first, second = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return times, first, second


def _find_lanes(spans: pd.DataFrame, window: np.ndarray) -> dict[str, np.ndarray]:
    """Return the time of each kind within the window that no earlier kind of KINDS has taken, in order."""
    lanes, taken = {}, np.empty((0, 2), dtype=np.int64)
    for kind in KINDS:
        own = intervals.intersect(_union(spans[spans["kind"] == kind]), window)
        lanes[kind] = intervals.subtract(own, taken)
        taken = intervals.union(taken, own)
    return lanes


def _union(spans: pd.DataFrame) -> np.ndarray:
    return intervals.union(spans[["start", "end"]].to_numpy(dtype=np.int64))


def _count(spans: pd.DataFrame) -> dict[str, int]:
    return {name: int((spans["kind"] == kind).sum()) for kind, name in COUNTS.items()}


def _sum_up(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])


def _covered_until(spans: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return how many ns of disjoint intervals lie before each time."""
    if not len(spans):
        return np.zeros(len(times), dtype=np.int64)
    before = _sum_up(spans[:, 1] - spans[:, 0])
    begun = np.searchsorted(spans[:, 0], times, side="right")
    last = np.maximum(begun - 1, 0)
    into = np.minimum(np.maximum(times - spans[last, 0], 0), spans[last, 1] - spans[last, 0])
    return np.where(begun > 0, before[last] + into, 0)
