"""Makes a cell's tables of threads, of calls off the CPU, of CPU samples, and of idle time by call, from its trace."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.range_names import STEP
from profzoo.tools.nsys.events import host_events, intervals
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.host_events import (
    CALL_CHAINS,
    COULD_RUN,
    LOST,
    OFF,
    RUNNING,
    SAMPLE_CHAINS,
    SAMPLES,
    SWITCHES,
    SYSTEM_CALLS,
    THREAD,
    HostEvents,
    launching_calls,
    read_stacks,
)
from profzoo.tools.nsys.events.trace import PROCESS, Source, Trace, explain_no_steps, open_trace
from profzoo.tools.nsys.over_time import gpu_metrics
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.nsys.steps.steps import CAUSES, FEEDING, ProcessEvents

# Sorts calls of the operating system's libraries by what a thread waits for in them.

# Kinds by the names of their calls, the first that fits; names as nsys writes them, those of glibc and POSIX.
KINDS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "lock": r"(pthread_)?(mutex|rwlock|spin)_.*|sem_.*|flock|lockf.*|fcntl.*",
        "condition": r"pthread_(cond|barrier)_.*|futex.*",
        "thread": r"pthread_(join|create|(timed|try)join_np|clockjoin_np)|wait|waitpid|waitid|wait[34]|v?fork|clone"
        r"|posix_spawnp?|exec.*",
        "sleep": r"(clock_)?nanosleep|u?sleep|pause|sigwait.*|sigsuspend|sched_yield",
        "poll": r"(__)?p?poll(_chk)?|p?select|epoll_.*",
        "socket": r"(recv|accept|connect|bind|listen|shutdown|socket|getaddrinfo).*|send(to|m+sg)?",
        "memory": r"m(un|re)?map.*|mprotect|s?brk|madvise|m(un)?lock(all|2)?|msync|(posix_)?memalign|shm.*",
        "device": r"ioctl",
        "file": r"([fp]?read|[fp]?write|f?open|creat|fdopen|f?close|fflush|fget|fput|(get|put)[csw]|getline|getdelim"
        r"|[fl]?stat|fseek|ftell|lseek|rewind|f?sync|fdatasync|f?truncate|sendfile|splice|tee|pipe|dup|access|rename"
        r"|unlink|mkdir|rmdir|(fd)?opendir|closedir|link|flockfile|v?f?printf|fscanf).*",
    }.items()
}
FILE, OTHER = "file", "other"
# Calls by which another thread ends a wait, by the kind of the wait. nsys does not trace how Python's own locks are let
# go; just before that, a thread takes the interpreter's lock, which signals a condition.
_SIGNALS = re.compile(
    r"pthread_cond_(signal|broadcast)|pthread_(mutex|rwlock|spin)_unlock|pthread_barrier_wait|sem_post"
)
_SENDS = re.compile(r"p?writev?(64)?|fwrite|fflush|send.*|eventfd_write|close|fclose|shutdown|kill|pthread_kill")
WAKING: Mapping[str, re.Pattern[str]] = {
    "lock": _SIGNALS,
    "condition": _SIGNALS,
    "poll": _SENDS,
    "file": _SENDS,
    "socket": _SENDS,
}


def kind_of_call(name: str) -> str:
    """Return the kind of a call by its name; OTHER for a call of none, and empty for no call.

    >>> [kind_of_call(name) for name in ("sem_wait", "pthread_cond_timedwait", "clock_nanosleep", "poll", "read")]
    ['lock', 'condition', 'sleep', 'poll', 'file']
    >>> [kind_of_call(name) for name in ("pthread_mutex_lock", "waitpid", "ioctl", "munmap", "recvmsg", "getpid", "")]
    ['lock', 'thread', 'device', 'memory', 'socket', 'other', '']
    """
    if not name:
        return ""
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(name)), OTHER)


# Splits the GPU's idle time by cause and by the call of the operating system in which the launching thread was.

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
    """The idle time of one GPU in the counted steps of a process; intervals in ns, shape (n, 2).

    steps: their number. part: weight of this GPU among those of the process, which add up to 1. span: from when they
    begin to when they end. held: intervals by cause, before any are moved. unqueued: those in which no launched work
    was pending. moved: part of the time of FEEDING within `unqueued` that counts as synchronisation.
    """

    steps: int
    part: float
    span: tuple[int, int]
    held: Mapping[str, np.ndarray]
    unqueued: np.ndarray
    moved: float


def find_idle(events: ProcessEvents) -> list[Idle]:
    """Return the idle time of a process's counted steps by GPU, which steps.where_time_goes adds up by cause."""
    ranges = events.ranges
    own = ranges[ranges["name"] == STEP].sort_values("start")
    counted = nsys_steps.counted_steps(own, events.activity)
    kept = ranges[ranges["start"] >= counted.on_cpu[0, 0]]
    waited, _ = nsys_steps.waited_ns(events.calls, events.activity, counted.on_cpu)
    begin, end = counted.span[0].tolist()
    found = []
    for one in counted.of_gpus:
        idle = intervals.subtract(one.span, one.when(one.activity))
        unqueued = nsys_steps.unqueued_spans(idle, one.activity)
        held = dict(zip(CAUSES, nsys_steps.spans(one, kept, events.calls), strict=True))
        most = sum(intervals.total(intervals.intersect(held[cause], unqueued)) for cause in FEEDING)
        moved = min(waited / most, 1.0) if most else 0.0
        found.append(Idle(one.steps, 1 / len(counted.of_gpus), (begin, end), held, unqueued, moved))
    return found


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
        states = host_events.find_states(events.switches)
        off = states[states["doing"] == host_events.OFF]
        for one in processes:
            gpus = find_idle(one)
            for thread, spans in launching_threads(events, one.process, gpus[0].span):
                mine = None if SWITCHES in events.lacking else _spans(off[off["thread"] == thread])
                pieces = [piece for idle in gpus for piece in _pieces(idle, spans)]
                rows += _rows_of_thread(events, thread, pieces, mine, gpus[0])
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
            yield cause, held, idle.part
            continue
        unqueued = intervals.intersect(held, idle.unqueued)
        yield cause, intervals.subtract(held, unqueued), idle.part
        yield cause, unqueued, idle.part * (1 - idle.moved)
        yield SYNCHRONISATION, unqueued, idle.part * idle.moved


def _rows_of_thread(
    events: HostEvents, thread: int, pieces: Iterable[tuple[str, np.ndarray, float]], off: np.ndarray | None, idle: Idle
) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a launching thread; off: intervals in ns in which it was off the CPU, None if unknown."""
    held = host_events.cut_states(events.os_calls[events.os_calls["thread"] == thread], *idle.span)
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
    # Less than half of the time is not an answer.
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
    # Less than half of the time is not an answer.
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


# Counts the CPU samples of an nsys export (SQLite) by thread, function and module.

SAMPLE_COLUMNS = ["process", "thread", "name", "function", "module", "samples", "share", "stack_samples", "stack_share"]
# A function that no sample was in itself is listed from this share of its thread's samples on.
LEAST_SHARE = 0.01


def read_frames(trace: Trace, events: HostEvents) -> pd.DataFrame:
    """Return one row per sample and function of its stack: `thread`, `start`, `sample`, `function`, `module`, `depth`.

    `depth` is 0 for the function that ran. Only samples within steps are returned; of one without a stack nothing is.
    """
    starts, ends = (np.sort(events.steps[column].to_numpy()) for column in ("start", "end"))
    times = events.samples["start"].to_numpy()
    # Samples in steps are those before which more steps began than ended.
    inside = np.searchsorted(starts, times, side="right") > np.searchsorted(ends, times, side="right")
    within = events.samples[inside]
    frames = read_stacks(trace, SAMPLE_CHAINS, within["sample"].tolist())
    return frames.rename(columns={"stack": "sample"}).merge(within, on="sample")


def innermost_functions(frames: pd.DataFrame) -> pd.DataFrame:
    """Return the function that ran in each sample, a row per sample; frames: rows of read_frames."""
    return frames.sort_values("depth", kind="stable").drop_duplicates("sample")


def tabulate_samples(frames: pd.DataFrame, events: HostEvents) -> pd.DataFrame:
    """Return one row per thread and function of samples in steps, the most sampled first; COLUMNS.

    `samples` are those in which the function itself ran, and add up to the thread's samples; `stack_samples` are those
    in which it ran or waited for what it called.
    """
    who = ["thread", "function", "module"]
    totals = frames.groupby("thread")["sample"].nunique()
    leaves = innermost_functions(frames).groupby(who).size().rename("samples")
    stacks = frames.drop_duplicates(["sample", *who]).groupby(who).size().rename("stack_samples")
    table = pd.concat([leaves, stacks], axis=1).fillna(0).reset_index()
    all_of = table["thread"].map(totals)
    table = table.assign(share=table["samples"] / all_of, stack_share=table["stack_samples"] / all_of)
    table = table[(table["samples"] > 0) | (table["stack_share"] >= LEAST_SHARE)]
    table = events.identify(table).astype({"samples": "int64", "stack_samples": "int64"})
    order = ["process", "thread", "samples", "stack_samples", "function", "module"]
    ascending = [True, True, False, False, True, True]
    return table.sort_values(order, ascending=ascending, kind="stable", ignore_index=True)[SAMPLE_COLUMNS]


# Makes two tables of what threads of the host did: by thread and step, and by the calls in which they left the CPU.

WHO = ["process", "step", "thread"]
ON_CPU = ["running_ns", "off_ns", "lost_ns", "preempted_ns", "switches", "core", "cores", "migrations"]
THREAD_COLUMNS = [*WHO, "name", "runs_step", "wall_ns", *ON_CPU, "os_calls", "os_call_ns", "cuda_calls", "cuda_call_ns",
           "left_in", "left_in_ns", "samples", "function", "function_share"]  # fmt: skip
OFF_COLUMNS = [*WHO, "name", "cuda_call", "os_call", "switches", "off_ns", "longest_ns", "preempted_ns"]


def tabulate_threads(events: HostEvents, functions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row per thread and step, and a row per thread, step and call in which the thread left the CPU.

    A step has a row for each thread that ran, called the operating system or CUDA, or was sampled in it. Threads of
    processes that run no steps, such as workers, count in the steps of the first process that does. What was not
    recorded is NaN. `running_ns`, `off_ns` and `lost_ns` add up to `wall_ns`; `off_ns` of the second table adds up to
    that of the first.

    functions: sample_table.innermost_functions of the same events.
    """
    states = host_events.find_states(events.switches)
    rows, left = [], []
    for step in events.steps.itertuples(index=False):
        others = set(events.steps["process"]) - {step.process}
        # Workers have no steps of their own.
        first = step.process == events.steps["process"].iloc[0]
        inside = _Within(events, states, functions, int(step.start), int(step.end))
        mine = [
            thread
            for thread in inside.seen_threads()
            if (owner := thread & PROCESS) == step.process or (first and owner not in others)
        ]
        off = _off_cpu(inside, events, mine)
        left += [off.assign(step=step.step)] if len(off) else []
        rows += [{"step": step.step, "runs_step": thread == step.thread, **inside.row(thread, off)} for thread in mine]
    table = _identified(
        pd.DataFrame(rows, columns=["thread", *(name for name in THREAD_COLUMNS if name != "thread")]), events
    )
    off = pd.concat(left, ignore_index=True) if left else pd.DataFrame(columns=["thread", "step", *OFF_COLUMNS[4:]])
    return table.astype({"core": "float64"}).astype({"core": "Int64"})[THREAD_COLUMNS], _identified(off, events)[
        OFF_COLUMNS
    ]


def _identified(table: pd.DataFrame, events: HostEvents) -> pd.DataFrame:
    """Replace nsys's globalTid by the numbers of process and thread, and add the thread's name."""
    return events.identify(table).sort_values(WHO, kind="stable", ignore_index=True)


class _Within:
    """What happened within one step; begin, end: its span in ns."""

    def __init__(self, events: HostEvents, states: pd.DataFrame, functions: pd.DataFrame, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.lacking, self.cuda = events.lacking, events.cuda
        self.known = set(states["thread"])
        self.states = host_events.cut_states(states, begin, end)
        self.os_calls = host_events.cut_states(events.os_calls, begin, end)
        self.cuda_calls = host_events.cut_states(events.cuda_calls, begin, end)
        self.samples = functions[functions["start"].between(begin, end, inclusive="left")]

    def seen_threads(self) -> list[int]:
        """Return the threads that ran, made a call or were sampled, by their number."""
        ran = self.states.loc[self.states["doing"] == RUNNING, "thread"]
        frames = (ran, self.os_calls["thread"], self.cuda_calls["thread"], self.samples["thread"])
        return sorted(set(pd.concat(frames).astype("int64").tolist()))

    def row(self, thread: int, off: pd.DataFrame) -> Mapping[str, object]:
        """Return the columns of a thread, but for its step and name; off: rows of `_off_cpu`."""
        os_calls, cuda = (held[held["thread"] == thread] for held in (self.os_calls, self.cuda_calls))
        traced = SYSTEM_CALLS not in self.lacking
        return {
            "thread": thread,
            "wall_ns": self.end - self.begin,
            **self._on_cpu(thread),
            "os_calls": len(os_calls) if traced else np.nan,
            "os_call_ns": os_calls["ns"].sum() if traced else np.nan,
            "cuda_calls": len(cuda) if self.cuda else np.nan,
            "cuda_call_ns": cuda["ns"].sum() if self.cuda else np.nan,
            **_left_most(off[off["thread"] == thread]),
            **self._sampled(thread),
        }

    def _on_cpu(self, thread: int) -> Mapping[str, float]:
        if SWITCHES in self.lacking or thread not in self.known:
            return dict.fromkeys(ON_CPU, np.nan)
        own = self.states[self.states["thread"] == thread]
        ns = own.groupby("doing")["ns"].sum()
        running = own[own["doing"] == RUNNING]
        off = own[own["doing"] == OFF]
        return {
            "running_ns": ns.get(RUNNING, 0),
            "off_ns": ns.get(OFF, 0),
            "lost_ns": ns.get(LOST, 0),
            "preempted_ns": _preempted_ns(off),
            "switches": int((off["start"] >= self.begin).sum()),
            "core": _main_core(running),
            "cores": running["cpu"].nunique(),
            "migrations": int((running["cpu"].to_numpy()[1:] != running["cpu"].to_numpy()[:-1]).sum()),
        }

    def _sampled(self, thread: int) -> Mapping[str, object]:
        if SAMPLES in self.lacking:
            return {"samples": np.nan, "function": "", "function_share": np.nan}
        own = self.samples.loc[self.samples["thread"] == thread, "function"]
        most = own.value_counts(sort=True)
        first, share = (most.index[0], most.iloc[0] / len(own)) if len(own) else ("", np.nan)
        return {"samples": len(own), "function": first, "function_share": share}


def _main_core(running: pd.DataFrame) -> float:
    """Return the core on which a thread ran for longest; NaN if it did not run, or no core is told."""
    told = running[running["cpu"] != UNKNOWN]
    return float(told.groupby("cpu")["ns"].sum().idxmax()) if len(told) else np.nan


def _preempted_ns(off: pd.DataFrame) -> float:
    """Return the ns off the CPU in which a thread could have run; NaN where the export tells no states."""
    told = off["state"] > 0
    return float(off.loc[off["state"] == COULD_RUN, "ns"].sum()) if told.any() or off.empty else np.nan


def _left_most(off: pd.DataFrame) -> Mapping[str, object]:
    """Return in which call a thread was off the CPU for longest, and how long; the OS call, or else the CUDA call."""
    if off.empty:
        return {"left_in": "", "left_in_ns": np.nan}
    most = off.loc[off["off_ns"].idxmax()]
    return {"left_in": most["os_call"] or most["cuda_call"], "left_in_ns": most["off_ns"]}


def _off_cpu(inside: _Within, events: HostEvents, threads: list[int]) -> pd.DataFrame:
    """Return one row per thread and calls in which it left the CPU: OFF_COLUMNS but for step, process and name."""
    off = inside.states[(inside.states["doing"] == OFF) & inside.states["thread"].isin(threads)]
    if off.empty:
        return pd.DataFrame(columns=["thread", *OFF_COLUMNS[4:]])
    # Of a stretch that began before the trace only its end is known.
    at = off["start"].where(off["start"] > host_events.BEFORE, off["end"] - 1).to_numpy()
    whose = off["thread"].to_numpy()
    labelled = off.assign(
        cuda_call=host_events.calls_at(events.cuda_calls, whose, at),
        os_call=host_events.calls_at(events.os_calls, whose, at),
        left=off["start"] >= inside.begin,
    )
    return pd.DataFrame(_by_call(labelled), columns=["thread", *OFF_COLUMNS[4:]])


def _by_call(off: pd.DataFrame) -> Iterator[tuple]:
    for (thread, cuda_call, os_call), own in off.groupby(["thread", "cuda_call", "os_call"]):
        yield thread, cuda_call, os_call, own["left"].sum(), own["ns"].sum(), own["ns"].max(), _preempted_ns(own)


def make_tables(source: Source, whole_run: bool = False) -> tuple[dict[str, pd.DataFrame], HostEvents]:
    """Return the tables of an export by name, `threads`, `off_cpu`, `samples` and `idle`, and what they were made of.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        events = host_events.read_host_events(trace, whole_run)
        idle = tabulate_idle(events, list(nsys_steps.read_processes(trace, whole_run)))
        frames = read_frames(trace, events)
        chains = [int(chain) for chain in idle["chain"].unique() if chain > 0]
        stacks = host_events.read_stacks(trace, CALL_CHAINS, chains)
    threads, off_cpu = tabulate_threads(events, innermost_functions(frames))
    made = {
        "threads": threads,
        "off_cpu": off_cpu,
        "samples": tabulate_samples(frames, events),
        "idle": name_callers(idle, stacks),
    }
    return made, events


def main(sqlite: str, report_sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print) -> None:
    """Read the export and its report's sidecar; write the tables, and say what was asked for and is not in the trace.

    outputs: paths of the tables by name. What nobody asked for goes to the log alone.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run, command = facts["capture"] == "run", facts.get("command", [])
    with open_trace(sqlite) as trace:
        made, events = make_tables(trace, whole_run)
        lacking = explain_no_steps(trace, whole_run)
    if lacking:
        # This goes to the log only; the export of the same trace tells the user.
        print(f"{outputs['threads']} has no row, as {sqlite} {lacking}")
    for table, why in events.lacking.items():
        tell = say if gpu_metrics.was_asked_for(table, command) else print
        tell(f"{sqlite}: {gpu_metrics.explain_missing_events(why, command)}")
    for name, path in outputs.items():
        write_csv(made[name], path)
