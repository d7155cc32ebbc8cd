"""Makes two tables of what threads of the host did: by thread and step, and by the calls in which they left the CPU."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from profzoo.tools.nsys import thread_states
from profzoo.tools.nsys.export_columns import UNKNOWN
from profzoo.tools.nsys.host_events import SAMPLES, SWITCHES, SYSTEM_CALLS, HostEvents
from profzoo.tools.nsys.thread_states import COULD_RUN, LOST, OFF, RUNNING
from profzoo.tools.nsys.trace import PROCESS

WHO = ["process", "step", "thread"]
ON_CPU = ["running_ns", "off_ns", "lost_ns", "preempted_ns", "switches", "core", "cores", "migrations"]
COLUMNS = [*WHO, "name", "runs_step", "wall_ns", *ON_CPU, "os_calls", "os_call_ns", "cuda_calls", "cuda_call_ns",
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
    states = thread_states.find_states(events.switches)
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
    table = _identified(pd.DataFrame(rows, columns=["thread", *(name for name in COLUMNS if name != "thread")]), events)
    off = pd.concat(left, ignore_index=True) if left else pd.DataFrame(columns=["thread", "step", *OFF_COLUMNS[4:]])
    return table.astype({"core": "float64"}).astype({"core": "Int64"})[COLUMNS], _identified(off, events)[OFF_COLUMNS]


def _identified(table: pd.DataFrame, events: HostEvents) -> pd.DataFrame:
    """Replace nsys's globalTid by the numbers of process and thread, and add the thread's name."""
    return events.identify(table).sort_values(WHO, kind="stable", ignore_index=True)


class _Within:
    """What happened within one step; begin, end: its span in ns."""

    def __init__(self, events: HostEvents, states: pd.DataFrame, functions: pd.DataFrame, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.lacking, self.cuda = events.lacking, events.cuda
        self.known = set(states["thread"])
        self.states = thread_states.cut(states, begin, end)
        self.os_calls = thread_states.cut(events.os_calls, begin, end)
        self.cuda_calls = thread_states.cut(events.cuda_calls, begin, end)
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
    at = off["start"].where(off["start"] > thread_states.BEFORE, off["end"] - 1).to_numpy()
    whose = off["thread"].to_numpy()
    labelled = off.assign(
        cuda_call=thread_states.calls_at(events.cuda_calls, whose, at),
        os_call=thread_states.calls_at(events.os_calls, whose, at),
        left=off["start"] >= inside.begin,
    )
    return pd.DataFrame(_by_call(labelled), columns=["thread", *OFF_COLUMNS[4:]])


def _by_call(off: pd.DataFrame) -> Iterator[tuple]:
    for (thread, cuda_call, os_call), own in off.groupby(["thread", "cuda_call", "os_call"]):
        yield thread, cuda_call, os_call, own["left"].sum(), own["ns"].sum(), own["ns"].max(), _preempted_ns(own)
