"""Splits the GPU's idle time by cause and by the call of the operating system in which the launching thread was."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.range_names import STEP
from profzoo.tools.nsys import intervals, thread_states
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys.export_columns import UNKNOWN
from profzoo.tools.nsys.host_events import SWITCHES, SYSTEM_CALLS, THREAD, HostEvents, launching_calls
from profzoo.tools.nsys.os_call_kinds import FILE, WAKING, kind_of_call
from profzoo.tools.nsys.process_events import ProcessEvents
from profzoo.tools.nsys.steps import CAUSES, FEEDING
from profzoo.tools.nsys.trace import PROCESS

SYNCHRONISATION = "synchronisation"
COLUMNS = ["process", "cause", "thread", "name", "os_call", "kind", "idle_ns", "off_ns", "calls", "woken_by", "file",
           "caller", "caller_module"]  # fmt: skip
# Columns that later functions add.
ADDED = ("process", "name", "caller", "caller_module")
# Modules that make calls on behalf of others: the C library, and nsys itself.
LIBRARIES = r"^(?:libc|libpthread|ld|librt)[-.]|ToolsInjection|^\[.*\]$|^$"
# Waits that somebody ends. Others may end by themselves; a call of another thread then counts only if it began at most
# so many ns before, as the scheduler takes tens of microseconds.
ALWAYS_WOKEN, WAKES_NS = ("lock", "condition"), 200_000


@dataclass(frozen=True)
class Idle:
    """The GPU's idle time in the counted steps of a process; intervals in ns, shape (n, 2).

    steps: their number. span: from when they begin to when they end. held: intervals by cause, before any are moved.
    unqueued: those in which no launched work was pending. moved: part of the time of FEEDING within `unqueued` that
    counts as synchronisation.
    """

    steps: int
    span: tuple[int, int]
    held: Mapping[str, np.ndarray]
    unqueued: np.ndarray
    moved: float


def find_idle(events: ProcessEvents) -> Idle:
    """Return the idle time of a process's counted steps, which steps.where_time_goes adds up by cause."""
    ranges = events.ranges
    own = ranges[ranges["name"] == STEP].sort_values("start")
    counted = nsys_steps.counted_steps(own, events.activity)
    kept = ranges[ranges["start"] >= counted.on_cpu[0, 0]]
    waited, _ = nsys_steps.waited_ns(events.calls, events.activity, counted.on_cpu)
    idle = intervals.subtract(counted.span, counted.when(counted.activity))
    unqueued = nsys_steps.unqueued_spans(idle, counted.activity)
    held = dict(zip(CAUSES, nsys_steps.spans(counted, kept, events.calls), strict=True))
    most = sum(intervals.total(intervals.intersect(held[cause], unqueued)) for cause in FEEDING)
    begin, end = counted.span[0].tolist()
    return Idle(counted.steps, (begin, end), held, unqueued, min(waited / most, 1.0) if most else 0.0)


def launching_threads(events: HostEvents, process: int, span: tuple[int, int]) -> list[tuple[int, np.ndarray]]:
    """Return which thread of a process launches next, at each moment of a span: threads with intervals in ns.

    A thread's time lasts from the end of the launching call before its own to the end of its own. After the last call,
    and where nothing is launched, it is the thread that runs the steps, or the main one where no trace names that.
    """
    begin, end = span
    calls = launching_calls(events.cuda_calls, process, span)
    ran = events.steps.loc[events.steps["process"] == process, "thread"]
    known = ran[ran != UNKNOWN]
    # On Linux the main thread has the number of its process.
    otherwise = int(known.iloc[0]) if len(known) else process | (process >> 24 & THREAD)
    edges = np.clip(np.concatenate(([begin], calls["end"].to_numpy(dtype=np.int64), [end])), begin, end)
    threads = np.append(calls["thread"].to_numpy(dtype=np.int64), otherwise)
    spans = np.column_stack((edges[:-1], edges[1:]))
    return [(int(thread), intervals.union(spans[threads == thread])) for thread in np.unique(threads)]


def tabulate_idle(events: HostEvents, processes: Sequence[ProcessEvents]) -> pd.DataFrame:
    """Return one row per process, cause, launching thread and call in which it was while the GPU was idle.

    Times and calls are per step. Rows add up to the idle time of steps.where_time_goes by cause. `os_call` is empty for
    time in no call of the operating system. `off_ns` is the part in which the thread was off the CPU; NaN where the
    trace has no context switches. `chain` is the call stack of the call with most of the time. Without traced calls of
    the operating system there is no row.
    """
    rows: list[Mapping[str, object]] = []
    if SYSTEM_CALLS not in events.lacking:
        states = thread_states.find_states(events.switches)
        off = states[states["doing"] == thread_states.OFF]
        for one in processes:
            idle = find_idle(one)
            for thread, spans in launching_threads(events, one.process, idle.span):
                mine = None if SWITCHES in events.lacking else _spans(off[off["thread"] == thread])
                rows += _rows_of_thread(events, thread, _pieces(idle, spans), mine, idle)
    table = pd.DataFrame(rows, columns=[*(name for name in COLUMNS if name not in ADDED), "chain"])
    place = table["cause"].map({cause: place for place, cause in enumerate(CAUSES)})
    ordered = table.assign(place=place).sort_values(["place", "idle_ns"], ascending=[True, False], kind="stable")
    named = events.identify(ordered.reset_index(drop=True))
    return named.sort_values("process", kind="stable", ignore_index=True)


def _spans(frame: pd.DataFrame) -> np.ndarray:
    return intervals.union(frame[["start", "end"]].to_numpy(dtype=np.int64))


def _pieces(idle: Idle, spans: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield cause, intervals and weight of all idle time within some intervals; weights tell what part counts there."""
    for cause, whole in idle.held.items():
        held = intervals.intersect(whole, spans)
        if cause not in FEEDING:
            yield cause, held, 1.0
            continue
        unqueued = intervals.intersect(held, idle.unqueued)
        yield cause, intervals.subtract(held, unqueued), 1.0
        yield cause, unqueued, 1 - idle.moved
        yield SYNCHRONISATION, unqueued, idle.moved


def _rows_of_thread(
    events: HostEvents,
    thread: int,
    pieces: Iterable[tuple[str, np.ndarray, float]],
    off: np.ndarray | None,
    idle: Idle,
) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a launching thread; off: intervals in ns in which it was off the CPU, None if unknown."""
    held = thread_states.cut(events.os_calls[events.os_calls["thread"] == thread], *idle.span)
    # The last row stands for time in no call.
    calls = pd.concat([held, pd.DataFrame([{"name": "", "chain": 0, "end": UNKNOWN}])], ignore_index=True)
    starts, ends = (held[edge].to_numpy(dtype=np.int64) for edge in ("start", "end"))

    def per_call(spans: np.ndarray, weight: float) -> np.ndarray:
        covered = intervals.covered_ns(spans, starts, ends)
        return weight * np.append(covered, intervals.total(spans) - covered.sum())

    frames = [
        calls.assign(
            cause=cause,
            idle_ns=per_call(spans, weight),
            off_ns=per_call(intervals.intersect(spans, off), weight) if off is not None else np.nan,
        )
        for cause, spans, weight in pieces
    ]
    together = pd.concat(frames, ignore_index=True)
    together = together[together["idle_ns"] > 0]
    for (cause, name), own in together.groupby(["cause", "name"], sort=False):
        kind = kind_of_call(str(name))
        yield {
            "thread": thread,
            "cause": cause,
            "os_call": name,
            "kind": kind,
            "idle_ns": own["idle_ns"].sum() / idle.steps,
            "off_ns": own["off_ns"].sum() / idle.steps if off is not None else np.nan,
            "calls": own["start"].nunique() / idle.steps,
            "woken_by": _waking_thread(events, thread, own, kind) if kind in WAKING else np.nan,
            "file": _file_name(events, thread, own) if kind == FILE else "",
            "chain": own.loc[own["idle_ns"].idxmax(), "chain"],
        }


def _waking_thread(events: HostEvents, thread: int, calls: pd.DataFrame, kind: str) -> float:
    """Return the number of the thread that ended most of the time of some waits; NaN if none can be told.

    It is the thread of the same process that last began a call that ends such waits, within the wait.
    calls: waits of one thread, with `start`, `end` and `idle_ns`. kind: that of their call.
    """
    others = events.os_calls
    near = others["start"].between(calls["start"].min(), calls["end"].max())
    own = near & (others["thread"] & PROCESS == thread & PROCESS) & (others["thread"] != thread)
    mine = others[own]
    names = [name for name in mine["name"].unique() if WAKING[kind].fullmatch(name)]
    waking = mine[mine["name"].isin(names)].sort_values("start", kind="stable")
    at = np.searchsorted(waking["start"].to_numpy(), calls["end"].to_numpy(), side="right") - 1
    found = at >= 0
    began, ended, ns = (calls[column].to_numpy()[found] for column in ("start", "end", "idle_ns"))
    last = waking.iloc[at[found]]
    earliest = began if kind in ALWAYS_WOKEN else np.maximum(began, ended - WAKES_NS)
    recent = last["start"].to_numpy() >= earliest
    if not recent.any():
        return np.nan
    by_thread = pd.Series(ns[recent]).groupby(last["thread"].to_numpy()[recent]).sum()
    # Less than half of the time is no answer.
    return float(by_thread.idxmax() & THREAD) if by_thread.max() > calls["idle_ns"].sum() / 2 else np.nan


def _file_name(events: HostEvents, thread: int, calls: pd.DataFrame) -> str:
    """Return the file of most of the time of some calls of one thread; empty if the trace does not tell one.

    calls: with `start`, `end` and `idle_ns`.
    """
    own = events.files[events.files["number"] == thread & THREAD]
    # The first access that begins within the call.
    at = np.searchsorted(own["start"].to_numpy(), calls["start"].to_numpy(), side="left")
    found = at < len(own)
    within = own.iloc[at[found]]
    inside = within["start"].to_numpy() <= calls["end"].to_numpy()[found]
    ns = pd.Series(calls["idle_ns"].to_numpy()[found][inside])
    by_file = ns.groupby(within["file"].to_numpy()[inside]).sum()
    # Less than half of the time is no answer.
    return str(by_file.idxmax()) if len(by_file) and by_file.max() > calls["idle_ns"].sum() / 2 else ""


def name_callers(table: pd.DataFrame, frames: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `caller` and `caller_module` instead of `chain`; COLUMNS.

    frames: rows of call_stacks.read_stacks for these chains.
    """
    outside = frames[~frames["module"].str.contains(LIBRARIES)].drop_duplicates("stack")
    known = {stack: (function, module) for stack, function, module, _ in outside.itertuples(index=False)}
    found = [known.get(int(chain), ("", "")) for chain in table["chain"]]
    # Whole numbers, also where some are missing.
    woken_by = table["woken_by"].astype("float64").astype("Int64")
    callers, modules = ([pair[side] for pair in found] for side in (0, 1))
    return table.assign(woken_by=woken_by, caller=callers, caller_module=modules)[COLUMNS]
