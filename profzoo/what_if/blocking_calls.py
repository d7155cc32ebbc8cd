"""Finds which calls waited, for what, and how much of their time was their own."""

import numpy as np
import pandas as pd

from profzoo.tools.nsys.steps import WAITS_NS
from profzoo.what_if import cuda_events
from profzoo.what_if.trace_events import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, Events

# What a call waits for: nothing; all that was launched before; what was launched before on a stream; an operation;
# an operation, before it gives the GPU its own.
NOTHING, ALL, STREAM, OPERATION, BEFORE = range(5)
# A stream's queue takes so many launches, unless the trace shows another number.
ROOM = 1024
# A call that waited for room leaves a queue at least this deep, and took so many times as long as others of its name; a
# queue where such calls take less than this part of three steps in four is not full.
DEEP, LONGER, SELDOM = 64, 2, 0.02
# The time of a call that waits, beside its wait, where none of its name was seen that did not.
CALL_NS = 5_000.0


def add_waits(host: pd.DataFrame, gpu: pd.DataFrame, events: Events) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables of a program with the waits of its calls.

    The CPU's gets `wait`, `target`, `tail`, `own`, and `waited`, what of the call was wait; the GPU's `room`, and
    `issued`, when each operation's call had found room for it.
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

    A queue has room for so many bytes, of which launches with many arguments take more, and room comes back for several
    at a time. So where a call waited the queue took as many as were there then, elsewhere as many as the next place
    where one waited, but more than there were.
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
    # What copies wait for is another buffer.
    deep = (depth >= DEEP) & ~host["copies"].to_numpy()[launching]
    usual = _typical(host.iloc[launching], took, deep)
    step = host["step"].to_numpy()[launching]
    each_step = (ends[-1] - starts[0]) / (step.max() + 1)
    for rows in at.values():
        freed = begins[rows[np.maximum(np.arange(len(rows)) - depth[rows], 0)]]
        long = deep[rows] & (took[rows] > LONGER * usual[rows]) & (freed > issued[rows])
        # What the machine does to a call now and then looks the same, where the queue is far from full.
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

    Such a call returns before its copy is done, and that is on the GPU behind what was launched before (CUDA driver
    API, "API synchronization behavior", memcpy). So the next one waits until the one before has left the buffer; and
    one that does not fit goes through it part by part, from when the GPU comes to it.
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
    """Return copies that had ended when their call returned, as copies to and from pageable memory may have."""
    calls = gpu["host"].to_numpy()
    done = host["copies"].to_numpy()[calls] & (gpu["end"].to_numpy() <= host["end"].to_numpy()[calls])
    wait[calls[done]], target[calls[done]] = OPERATION, np.flatnonzero(done)


def _synchronising(host: pd.DataFrame, gpu: pd.DataFrame, events: Events, wait: np.ndarray, target: np.ndarray) -> None:
    """Return calls that synchronise, as the trace says, else by what ended last before they returned."""
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
            # Launches are a queue at most, and what ended long before was no longer waited for.
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
    """Return the end of each call's wait; -inf for calls that wait for nothing."""
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
    # What was still running when the call returned is not what it waited for.
    return np.where(until <= host["end"].to_numpy(), until, -np.inf)


def _typical(host: pd.DataFrame, own: np.ndarray, waits: np.ndarray) -> np.ndarray:
    """Return the median time of calls of the same name that waited for nothing; CALL_NS where there are none."""
    free = pd.Series(own[~waits]).groupby(host["name"].to_numpy()[~waits]).median()
    return host["name"].map(free).fillna(CALL_NS).to_numpy(dtype=float)
