"""Finds which calls waited, for what, and how much of their time was their own."""

import numpy as np
import pandas as pd

from profzoo.tools.nsys.steps import WAITS_NS
from profzoo.what_if import cuda_events
from profzoo.what_if.trace_events import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, Events

# What a call waits for: nothing; every earlier operation; every earlier operation on a stream; one operation; one
# operation that must end before the call issues its own.
NOTHING, ALL, STREAM, OPERATION, BEFORE = range(5)
# Number of launches that a stream's queue holds, unless the trace shows another number.
ROOM = 1024
# A call waited for room if it left a queue of at least DEEP launches, and took more than LONGER times as long as other
# calls of its name. The queue is full only if, in one step of four, such calls exceed the share SELDOM of the step.
DEEP, LONGER, SELDOM = 64, 2, 0.02
# Time of a waiting call without its wait, if the trace has no call of this name that did not wait.
CALL_NS = 5_000.0


def add_waits(host: pd.DataFrame, gpu: pd.DataFrame, events: Events) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables of a program with the waits of its calls.

    Args:
        host, gpu: tables of a program before waits are known (see program.Program).
        events: the traced events of the same process.

    Returns: `host` with the columns `wait`, `target`, `tail`, `own` and `waited`, the ns that the call spent waiting.
    `gpu` with the columns `room` and `issued`, the time in ns when the call had found room for the operation.
    """
    room, issued, waited_for_room = _queue(host, gpu)
    starts, ends = host["start"].to_numpy(dtype=float), host["end"].to_numpy(dtype=float)
    wait, target = np.zeros(len(host), dtype=np.int64), np.full(len(host), -1)
    _staged(host, gpu, issued, wait, target)
    begun = starts.copy()
    begun[gpu["host"]] = issued
    _copies(host, gpu, wait, target)
    _synchronising(host, gpu, events, wait, target)
    until = _until(host, gpu, wait, target)
    waits = wait != NOTHING
    waited = waits & (until > starts)
    own = np.maximum(ends - begun, 0.0)
    waited_before = waited_for_room | (wait == BEFORE)
    typical = _typical(host, own, waits)
    tail = np.where(waited, ends - until, np.minimum(own, np.median((ends - until)[waited]) if waited.any() else own))
    own = np.where(waited, np.minimum(own, typical), own)
    blocked = np.where(waited, np.maximum(ends - starts - own, 0.0), np.where(waited_before, begun - starts, 0.0))
    described = host.assign(wait=wait, target=target, tail=np.where(waits, tail, 0.0), own=own, waited=blocked)
    return described, gpu.assign(issued=issued, room=room)


def _queue(host: pd.DataFrame, gpu: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return per operation the queue length of its stream and when it found room, and the calls that waited for room.

    A queue holds a number of bytes, not of launches: launches with many arguments take more, and room is freed for
    several launches at a time. At a call that waited, the queue length is the number of launches in the queue at that
    moment. Elsewhere it is the length at the nearest following call that waited, and more than the queue held.
    """
    starts, ends = host["start"].to_numpy(dtype=float), host["end"].to_numpy(dtype=float)
    calls = gpu["host"].to_numpy()
    first = np.concatenate(([True], calls[1:] != calls[:-1]))
    heads, launching = gpu[first], calls[first]
    begins, issued = heads["start"].to_numpy(dtype=float), starts[launching]
    took = ends[launching] - issued
    depth, room = np.zeros(len(heads), dtype=np.int64), np.full(len(heads), ROOM)
    full = np.zeros(len(heads), dtype=bool)
    at = heads.groupby("stream").indices
    for rows in at.values():
        depth[rows] = np.arange(len(rows)) + 1 - np.searchsorted(np.sort(begins[rows]), ends[launching[rows]])
    # Copies wait for another buffer, not for room in this queue.
    deep = (depth >= DEEP) & ~host["copies"].to_numpy()[launching]
    usual = _typical(host.iloc[launching], took, deep)
    step = host["step"].to_numpy()[launching]
    each_step = (ends[-1] - starts[0]) / (step.max() + 1)
    for rows in at.values():
        freed = begins[rows[np.maximum(np.arange(len(rows)) - depth[rows], 0)]]
        long = deep[rows] & (took[rows] > LONGER * usual[rows]) & (freed > issued[rows])
        # Now and then the machine delays a call although the queue is far from full, which looks the same.
        excess = np.bincount(step[rows], np.where(long, took[rows] - usual[rows], 0.0))
        full[rows] = long & (np.quantile(excess, 0.75) > SELDOM * each_step)
        if (waits := np.flatnonzero(full[rows])).size:
            near = np.clip(np.searchsorted(waits, np.arange(len(rows))), 0, waits.size - 1)
            room[rows] = depth[rows[waits[near]]]
            issued[rows[waits]] = freed[waits]
    room = np.where(full, depth, np.maximum(depth + 1, room))
    waited = np.zeros(len(host), dtype=bool)
    waited[launching] = full
    each = np.cumsum(first) - 1
    return room[each], issued[each], waited


def _staged(host: pd.DataFrame, gpu: pd.DataFrame, issued: np.ndarray, wait: np.ndarray, target: np.ndarray) -> None:
    """Find copies from pageable memory whose calls waited for the staging buffer; set when they were issued.

    Such a call returns before its copy is done; the copy runs after all earlier operations of its stream (CUDA driver
    API, "API synchronization behavior", memcpy). Therefore the next such call waits until the previous copy has left
    the buffer. A copy that is larger than the buffer passes it part by part once the GPU reaches the copy.

    The arrays `issued`, `wait` and `target` are changed in place.
    """
    starts, ends = host["start"].to_numpy(dtype=float), host["end"].to_numpy(dtype=float)
    launched = gpu["host"].to_numpy()
    crossing = gpu["crossing"].to_numpy(dtype=bool) & host["copies"].to_numpy()[launched]
    begun, done = gpu["start"].to_numpy(dtype=float), gpu["end"].to_numpy(dtype=float)
    for mine in gpu.groupby("stream").indices.values():
        places = np.flatnonzero(crossing[mine])
        one_before, copies, before = mine[places[:-1]], mine[places[1:]], mine[places[1:] - 1]
        start, end = starts[launched[copies]], ends[launched[copies]]
        for left_by, may in ((one_before, True), (before, begun[copies] < end)):
            left = done[left_by]
            blocked = may & (left > start + WAITS_NS) & (left < end) & (end < done[copies])
            wait[launched[copies[blocked]]], target[launched[copies[blocked]]] = BEFORE, left_by[blocked]
            issued[copies[blocked]] = left[blocked]


def _copies(host: pd.DataFrame, gpu: pd.DataFrame, wait: np.ndarray, target: np.ndarray) -> None:
    """Mark calls whose copy had ended when they returned, in `wait` and `target`: some copies of pageable memory."""
    calls = gpu["host"].to_numpy()
    done = host["copies"].to_numpy()[calls] & (gpu["end"].to_numpy() <= host["end"].to_numpy()[calls])
    wait[calls[done]], target[calls[done]] = OPERATION, np.flatnonzero(done)


def _synchronising(host: pd.DataFrame, gpu: pd.DataFrame, events: Events, wait: np.ndarray, target: np.ndarray) -> None:
    """Fill in `wait` and `target` of synchronising calls: from the trace, else from the last operation to end."""
    if gpu.empty:
        return
    columns = [events.waits[name] for name in ("kind", "stream", "event", "record")]
    known = dict(zip(events.waits["correlation"], zip(*columns, strict=True), strict=True))
    records = cuda_events.Records(events, host, gpu)
    mine = gpu.groupby("stream").indices
    launched, ends, streams = gpu["host"].to_numpy(), gpu["end"].to_numpy(), gpu["stream"].to_numpy()
    names, finished, ids = host["name"].to_numpy(), host["end"].to_numpy(), host["correlation"].to_numpy()
    for row in np.flatnonzero(host["syncs"]):
        before = int(np.searchsorted(launched, row))
        if not before:
            continue
        kind, stream, event, record = known.get(ids[row], (NOTHING, NONE, NONE, NONE))
        if kind == CONTEXT_SYNC or "Device" in names[row] or "Ctx" in names[row] or "Free" in names[row]:
            wait[row] = ALL
            continue
        if kind == STREAM_SYNC and stream in mine and mine[stream][0] < before:
            wait[row], target[row] = STREAM, stream
            continue
        operation = records.meant(event, record, int(row)) if kind == EVENT_SYNC else -1
        if operation < 0:
            # A queue limits how many launches can be pending; an operation that ended long before was not awaited.
            recent = np.arange(max(before - 4 * ROOM, 0), before)
            over = recent[ends[recent] <= finished[row]]
            if not len(over):
                continue
            operation = int(over[np.argmax(ends[over])])
        own = mine[streams[operation]]
        last = own[np.searchsorted(own, before) - 1]
        if operation == last and "Stream" in names[row]:
            wait[row], target[row] = STREAM, streams[operation]
        else:
            wait[row], target[row] = OPERATION, operation


def _until(host: pd.DataFrame, gpu: pd.DataFrame, wait: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the time in ns at which each call's wait ended; -inf for calls that wait for nothing."""
    ends, launched = gpu["end"].to_numpy(dtype=float), gpu["host"].to_numpy()
    before = np.searchsorted(launched, np.arange(len(host)))
    until = np.full(len(host), -np.inf)
    latest = np.concatenate(([-np.inf], np.maximum.accumulate(ends)))
    until[wait == ALL] = latest[before[wait == ALL]]
    until[wait == OPERATION] = ends[target[wait == OPERATION]]
    for stream in np.unique(target[wait == STREAM]):
        rows = np.flatnonzero((wait == STREAM) & (target == stream))
        mine = np.where(gpu["stream"].to_numpy() == stream, ends, -np.inf)
        until[rows] = np.concatenate(([-np.inf], np.maximum.accumulate(mine)))[before[rows]]
    # The call did not wait for an operation that was still running when the call returned.
    return np.where(until <= host["end"].to_numpy(), until, -np.inf)


def _typical(host: pd.DataFrame, own: np.ndarray, waits: np.ndarray) -> np.ndarray:
    """Return for each call the median ns of calls with its name that waited for nothing; CALL_NS without any."""
    free = pd.Series(own[~waits]).groupby(host["name"].to_numpy()[~waits]).median()
    return host["name"].map(free).fillna(CALL_NS).to_numpy(dtype=float)
