"""Finds what each GPU operation waited for: its call, the operation before it on its stream, or another stream."""

import bisect

import numpy as np
import pandas as pd

from profzoo.what_if import cuda_events
from profzoo.what_if.trace_events import STREAM_WAIT, Events

# An operation waited for another stream if it began more than EXPLAINED_NS later than its call and its own stream
# explain, and if an operation on the other stream ended at most DEPENDS_NS before.
EXPLAINED_NS = 3_000.0
DEPENDS_NS = 10_000.0
# Most operations to search among those that ended around that time.
MOST = 64
# Time from the end of a launching call to the start on the GPU, and gap between two operations, if the trace shows
# neither. These are the medians of a training step of MobileNetV2 on an H200 (tests/data/nsys/train.sqlite.gz).
AFTER_NS, GAP_NS = 1_800.0, 1_100.0
# Time from the end of an operation until a waiting stream continues: two gaps, because an event lies between.
LAG_NS = 2_200.0
# Fewest observations for a median.
FEW = 5


def add_dependencies(host: pd.DataFrame, gpu: pd.DataFrame, events: Events) -> tuple[pd.DataFrame, float]:
    """Return the GPU table with `latency`, `gap`, `dep` and `dep_gap`, and the median `after` of launches.

    All values are in ns (see program.Program). One bound decided when each operation began: its call, its stream or a
    dependency. For this bound the value is the measured one, so that a simulation reproduces the measured start. For
    the other bounds it is the median of operations of the same kind, or the measured value if that is less.
    """
    begins, ends = gpu["start"].to_numpy(dtype=float), gpu["end"].to_numpy(dtype=float)
    issued = gpu["issued"].to_numpy()
    called = host["end"].to_numpy(dtype=float)[gpu["host"]]
    called = np.where(host["waited"].to_numpy()[gpu["host"]] > 0, np.minimum(called, issued + AFTER_NS), called)
    before = gpu["end"].astype(float).groupby(gpu["stream"]).transform(lambda own: own.cummax().shift())
    before = before.fillna(-np.inf).to_numpy()
    kinds = gpu["kind"].to_numpy()
    node = gpu["node"].to_numpy() & (gpu["host"].to_numpy() == np.concatenate(([-1], gpu["host"].to_numpy()[:-1])))
    after = _after(begins, ends, called, issued, before, kinds, node)
    usual = np.maximum(called - issued + after, 0.0)
    gaps = _gaps(begins, before, issued + usual, kinds, node)
    by_call, by_stream = issued + usual, before + gaps
    latency, gap = np.minimum(usual, begins - issued), np.minimum(gaps, begins - before)
    expected = np.maximum(by_call, by_stream)
    dep, certain = _elsewhere(gpu, events, host, node, expected)
    dep_gap = np.where(dep >= 0, begins - ends[dep], 0.0)
    lag = _lag(dep_gap, (dep >= 0) & ~node & (begins > expected + EXPLAINED_NS))
    held = (dep >= 0) & (node | ~certain | (ends[dep] + lag >= expected))
    dep_gap = np.where(held, dep_gap, np.minimum(dep_gap, lag))
    streams = ~held & (by_stream >= by_call)
    latency = np.where(~held & ~streams, begins - issued, latency)
    gap = np.where(streams, begins - before, gap)
    # Nodes of a graph wait only for each other.
    latency, gap = np.where(node, 0.0, latency), np.where(node, -np.inf, np.where(np.isfinite(gap), gap, gaps))
    found = gpu.assign(latency=latency, gap=gap, dep=dep, dep_gap=dep_gap)
    return found, float(np.median(after[kinds == 0])) if (kinds == 0).any() else AFTER_NS


def _after(
    begins: np.ndarray,
    ends: np.ndarray,
    called: np.ndarray,
    issued: np.ndarray,
    before: np.ndarray,
    kinds: np.ndarray,
    node: np.ndarray,
) -> np.ndarray:
    """Return per operation its kind's median ns from the call's end to the start on the GPU, if the GPU was idle."""
    busy = np.concatenate(([-np.inf], np.maximum.accumulate(ends)[:-1]))
    idle = ~node & (before <= issued)
    alone = idle & (busy <= issued)
    return _medians(begins - called, kinds, alone, idle, AFTER_NS)


def _gaps(
    begins: np.ndarray, before: np.ndarray, by_call: np.ndarray, kinds: np.ndarray, node: np.ndarray
) -> np.ndarray:
    """Return per operation its kind's median gap in ns after the operation before on the stream, if it was queued."""
    gaps = begins - np.where(np.isfinite(before), before, 0)
    # A longer gap is a wait for something else.
    queued = ~node & np.isfinite(before) & (before > by_call + EXPLAINED_NS) & (gaps <= DEPENDS_NS)
    return _medians(gaps, kinds, queued, queued, GAP_NS)


def _medians(
    values: np.ndarray, kinds: np.ndarray, surely: np.ndarray, perhaps: np.ndarray, otherwise: float
) -> np.ndarray:
    """Return per operation a typical value of its kind, or `otherwise` with fewer than FEW observations.

    It is the median of the certain observations (`surely`), else the 10th percentile of the possible ones (`perhaps`).
    """
    result = np.full(len(values), otherwise)
    for kind in np.unique(kinds):
        mine = kinds == kind
        if (mine & surely).sum() >= FEW:
            result[mine] = np.median(values[mine & surely])
        elif (mine & perhaps).sum() >= FEW:
            result[mine] = np.quantile(values[mine & perhaps], 0.1)
    return result


def _lag(dep_gap: np.ndarray, late: np.ndarray) -> float:
    """Return the median ns from the end of an operation to the operations on other streams that waited for it."""
    tells = late & (dep_gap >= 0) & (dep_gap <= DEPENDS_NS)
    return float(np.median(dep_gap[tells])) if tells.sum() >= FEW else LAG_NS


def _elsewhere(
    gpu: pd.DataFrame, events: Events, host: pd.DataFrame, node: np.ndarray, expected: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return per operation the one on another stream that it waits for, -1 for none, and whether the trace says so."""
    begins, ends = gpu["start"].to_numpy(dtype=float), gpu["end"].to_numpy(dtype=float)
    dep = _by_events(gpu, events, host)
    certain = dep >= 0
    explained = np.where(certain, np.maximum(expected, ends[dep] + LAG_NS), expected)
    late = node | (begins > explained + EXPLAINED_NS)
    if late.any():
        inferred = _inferred(gpu, late, node)
        certain &= inferred < 0
        dep = np.where(inferred >= 0, inferred, dep)
    return dep, certain


def _inferred(gpu: pd.DataFrame, late: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Return per operation the index of the one that it waited for; -1 if unknown or not flagged as late.

    A node of a graph waited for the node that ended last before it began. Any other operation waited for the operation
    on another stream that ended last, if that was shortly before. Otherwise it waited for the running operation that
    was next to end there, because this one left no room on the GPU.
    """
    begins, ends = gpu["start"].to_list(), gpu["end"].to_list()
    streams, calls = gpu["stream"].to_list(), gpu["host"].to_list()
    several = gpu["stream"].nunique() > 1
    order = np.argsort(gpu["end"].to_numpy(), kind="stable").tolist()
    sorted_ends = [ends[index] for index in order]
    found = np.full(len(gpu), -1)
    for index in np.flatnonzero(late).tolist():
        at = bisect.bisect_right(sorted_ends, begins[index])
        if node[index]:
            # A node that begins before any other has ended begins together with the first node.
            found[index] = bisect.bisect_left(calls, calls[index])
            for other in reversed(order[max(at - MOST, 0) : at]):
                if calls[other] == calls[index] and other < index:
                    found[index] = other
                    break
        elif several:
            before = (one for one in reversed(order[max(at - MOST, 0) : at]) if begins[index] - ends[one] <= DEPENDS_NS)
            running = (one for one in order[at : at + MOST] if begins[one] < begins[index])
            others = (one for one in (*before, *running) if streams[one] != streams[index])
            found[index] = next(others, -1)
    return found


def _by_events(gpu: pd.DataFrame, events: Events, host: pd.DataFrame) -> np.ndarray:
    """Return per operation the one that its stream was told to wait for by an event (cudaStreamWaitEvent), or -1."""
    dep = np.full(len(gpu), -1)
    waits = events.waits[events.waits["kind"] == STREAM_WAIT]
    if waits.empty or events.records.empty:
        return dep
    records = cuda_events.Records(events, host, gpu)
    rows = {number: row for row, number in enumerate(host["correlation"])}
    launched, ends = gpu["host"].to_numpy(), gpu["end"].to_numpy()
    at = {stream: (mine, launched[mine]) for stream, mine in gpu.groupby("stream").indices.items()}
    columns = (waits[name].to_list() for name in ("correlation", "stream", "event", "record"))
    for correlation, stream, event, record in zip(*columns, strict=True):
        row = rows.get(correlation, -1)
        operation = records.meant(event, record, row) if row >= 0 else -1
        if operation < 0 or stream not in at:
            continue
        mine, calls = at[stream]
        place = int(np.searchsorted(calls, row, side="right"))
        if place < len(mine) and (dep[mine[place]] < 0 or ends[dep[mine[place]]] < ends[operation]):
            dep[mine[place]] = operation
    return dep
