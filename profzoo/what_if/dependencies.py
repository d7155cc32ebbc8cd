"""Finds what each GPU operation waited for, and which calls of the host waited, for what and how long."""

import bisect
from collections import defaultdict

import numpy as np
import pandas as pd

from profzoo.tools.nsys.steps.steps import WAITS_NS
from profzoo.what_if.trace_events import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT, Events

# Resolves CUDA events: each stands for the last operation on its stream when it was recorded.


class Records:
    """The recordings of CUDA events by a program's calls: by event and, if the trace numbers them, by recording."""

    def __init__(self, events: Events, host: pd.DataFrame, gpu: pd.DataFrame):
        """Find the operation that each recording stands for.

        Args:
            events: the traced events of one process.
            host: the host's table of the program; `correlation` is read.
            gpu: the GPU's table of the program; `stream` and `host` are read.
        """
        rows = pd.Series(host.index, index=host["correlation"])
        made = events.records["correlation"].map(rows[~rows.index.duplicated()])
        known = events.records[made.notna()].assign(made=made.dropna().astype(np.int64)).sort_values("made")
        at = last_before(gpu, known["stream"].to_numpy(), known["made"].to_numpy())
        self._made: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._operation: dict[tuple[str, int], list[int]] = defaultdict(list)
        for event, record, row, operation in zip(known["event"], known["record"], known["made"], at, strict=True):
            for key in (("event", event), ("record", record)):
                self._made[key].append(row)
                self._operation[key].append(int(operation))

    def meant(self, event: int, record: int, row: int) -> int:
        """Return the index of the operation that a call waits for; -1 if unknown.

        Args:
            event, record: numbers of the event and of its recording; a record of 0 or NONE means unknown.
            row: row of the waiting call in the host's table.
        """
        key = ("event", event) if record in (0, NONE) else ("record", record)
        place = bisect.bisect_left(self._made.get(key, []), row)
        return self._operation[key][place - 1] if place else -1


def last_before(gpu: pd.DataFrame, streams: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return for each pair of stream and host row the last operation launched on the stream before the row, or -1."""
    last, launched = np.full(len(streams), -1), gpu["host"].to_numpy()
    for stream, at in gpu.groupby("stream").indices.items():
        mine = streams == stream
        place = np.searchsorted(launched[at], rows[mine]) - 1
        last[mine] = np.where(place >= 0, at[np.maximum(place, 0)], -1)
    return last


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
    records = Records(events, host, gpu)
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


# Finds which calls waited, for what, and how much of their time was their own.

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
    records = Records(events, host, gpu)
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
