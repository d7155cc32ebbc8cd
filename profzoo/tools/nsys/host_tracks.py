"""Supplies tracks for the picture of a step: when threads were on a CPU, and in which functions and calls they were."""

import sqlite3
from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.tools.nsys import thread_states
from profzoo.tools.nsys.call_stacks import UNRESOLVED, read_stacks
from profzoo.tools.nsys.host_events import (
    SAMPLE_CHAINS,
    SAMPLES,
    SWITCHES,
    SYSTEM_CALLS,
    THREAD,
    HostEvents,
    explain_missing,
    launching_calls,
    read_threads,
)
from profzoo.tools.nsys.thread_states import LOST, OFF, RUNNING
from profzoo.tools.nsys.trace import PROCESS
from profzoo.tools.nsys.tracks import COLUMNS, Supplied, TypicalStep

# Threads besides the launching ones whose states are shown: those that ran most, at least for this share of the step.
MOST, LEAST_SHARE = 4, 0.01
# Shorter calls would not be seen, and do not wait: part of the step.
SHORTEST = 0.0005
# How long nsys waits for the next sample of a thread that runs, in ns; counts where a trace has one sample per thread.
SAMPLED_NS = 1_000_000
LABELS: Mapping[str, str] = {RUNNING: "running", OFF: "off the CPU", LOST: "unknown"}


def supply_thread_states(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return a track per thread with the spans in which it was on a CPU or off it, or a line that says why not.

    Threads are those that launch work within the step, the main thread, and others of the process that ran most.

    Returns: COLUMNS; times in ns from the step's begin. `label` is a value of LABELS, `value` NaN and `unit` empty.
    """
    if why := explain_missing(database, tables, SWITCHES):
        return why
    events = read_threads(database, tables, unread=(SYSTEM_CALLS, SAMPLES))
    states = thread_states.find_states(events.switches)
    mine = thread_states.cut(states[states["thread"] & PROCESS == step.process], step.begin, step.end)
    ran = mine[mine["doing"] == RUNNING].groupby("thread")["ns"].sum().sort_values(ascending=False, kind="stable")
    first = [thread for thread in _launching(events, step) if thread in set(mine["thread"])]
    others = [
        thread for thread, ns in ran.items() if thread not in first and ns >= LEAST_SHARE * (step.end - step.begin)
    ]
    frames = []
    for thread in [*first, *others[:MOST]]:
        own = mine[mine["thread"] == thread]
        frames.append(_spans(_title(events, int(str(thread)), step), own, own["doing"].map(LABELS), step))
    return pd.concat(frames, ignore_index=True) if frames else _spans("", mine[:0], mine["doing"][:0], step)


def supply_samples(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return a track per launching thread with the functions that it was sampled in, or a line that says why not.

    A sample stands for the time until the next one of its thread, and for no longer than that usually is.

    Returns: COLUMNS, as supply_thread_states does; `label` is the function, or the library of one without a name.
    """
    if why := explain_missing(database, tables, SAMPLES):
        return why
    events = read_threads(database, tables, unread=(SYSTEM_CALLS, SWITCHES))
    threads = _launching(events, step)
    mine = thread_states.cut(_lasting(events.samples), step.begin, step.end)
    mine = mine[mine["thread"].isin(threads)]
    stacks = read_stacks(database, tables, SAMPLE_CHAINS, mine["sample"].tolist()).drop_duplicates("stack")
    unnamed = "in " + stacks["module"].where(stacks["module"] != "", "an unknown library")
    names = stacks.assign(name=stacks["function"].where(stacks["function"] != UNRESOLVED, unnamed))
    named = mine.merge(names[["stack", "name"]], left_on="sample", right_on="stack")
    tracks = [(f"functions: {_title(events, one, step)}", _join(named[named["thread"] == one])) for one in threads]
    return pd.concat([_spans(title, own, own["name"], step) for title, own in tracks], ignore_index=True)


def _lasting(samples: pd.DataFrame) -> pd.DataFrame:
    """Return samples with the `end` of the time for which each stands; samples: HostEvents.samples."""
    gaps = samples.groupby("thread")["start"].shift(-1) - samples["start"]
    usual = gaps.median() if gaps.notna().any() else SAMPLED_NS
    return samples.assign(end=samples["start"] + gaps.fillna(usual).clip(upper=usual).astype("int64"))


def _join(samples: pd.DataFrame) -> pd.DataFrame:
    """Return spans of one thread, by start; those of the same function that follow each other without a gap are one."""
    begins = (samples["name"] != samples["name"].shift()) | (samples["start"] != samples["end"].shift())
    return samples.groupby(begins.cumsum()).agg(start=("start", "min"), end=("end", "max"), name=("name", "first"))


def supply_os_calls(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return a track per launching thread with its calls of the operating system, or a line that says why not.

    Returns: COLUMNS, as supply_thread_states does; `label` is the name of the call. Calls shorter than SHORTEST are not
    among them.
    """
    if why := explain_missing(database, tables, SYSTEM_CALLS):
        return why
    events = read_threads(database, tables, unread=(SWITCHES, SAMPLES))
    mine = thread_states.cut(events.os_calls, step.begin, step.end)
    mine = mine[mine["ns"] >= SHORTEST * (step.end - step.begin)]
    frames = []
    for thread in _launching(events, step):
        own = mine[mine["thread"] == thread]
        frames.append(_spans(f"calls: {_title(events, thread, step)}", own, own["name"], step))
    return pd.concat(frames, ignore_index=True)


def _launching(events: HostEvents, step: TypicalStep) -> list[int]:
    """Return the main thread and the threads that launch work within the step; the one with most launches first."""
    calls = launching_calls(events.cuda_calls, step.process, (step.begin, step.end))
    return list(dict.fromkeys([*calls["thread"].value_counts().index.tolist(), _main(step)]))


def _main(step: TypicalStep) -> int:
    """Return the main thread, which on Linux has the number of its process."""
    return step.process | step.process >> 24 & THREAD


def _title(events: HostEvents, thread: int, step: TypicalStep) -> str:
    """Return a short title of a thread: its name, with its number where other threads of the process have the same."""
    if thread == _main(step):
        return "main thread"
    name = events.names.get(thread, "")
    alike = [one for one, known in events.names.items() if known == name and one & PROCESS == step.process]
    return name if name and len(alike) == 1 else f"{name} {thread & THREAD}".lstrip()


def _spans(track: str, events: pd.DataFrame, labels: pd.Series, step: TypicalStep) -> pd.DataFrame:
    starts = np.maximum(events["start"].to_numpy(dtype=np.int64), step.begin) - step.begin
    ends = np.minimum(events["end"].to_numpy(dtype=np.int64), step.end) - step.begin
    columns = {"label": labels.to_numpy(), "start_ns": starts, "end_ns": ends, "value": np.nan}
    texts = dict.fromkeys(("track", "label", "unit"), "str")
    return pd.DataFrame(columns).assign(track=track, unit="").astype(texts)[COLUMNS]
