"""Declares the tables of what threads of the host did in a trace, which host_tables.py makes."""

import pandas as pd

from profzoo.io.columns import AMOUNT, COUNT, CPU, FLAG, GPU, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys.host import host_tables

# Relative error of sums that rounding may cause.
ROUNDING = 1e-6


def _adds_up(table: pd.DataFrame) -> str | None:
    known = table.dropna(subset=["running_ns"])
    parts = known["running_ns"] + known["off_ns"] + known["lost_ns"]
    off = (parts - known["wall_ns"]).abs() > 1 + ROUNDING * known["wall_ns"]
    return f"row {int(off.idxmax()) + 1}: running_ns, off_ns and lost_ns are not wall_ns" if off.any() else None


def _within(table: pd.DataFrame) -> str | None:
    over = table["off_ns"] > table["idle_ns"] + 1
    return f"row {int(over.argmax()) + 1}: off_ns is more than idle_ns" if over.any() else None


_PREEMPTED = (
    "Part of `off_ns` in which the thread could have run; empty where this nsys does not say why a thread leaves."
)
THREADS = Table(
    columns={
        "process": Column(COUNT, "Process ID of the thread.", tool="nsys"),
        "step": Column(COUNT, "Number of the step within the window, counted from 0.", tool="nsys"),
        "thread": Column(
            COUNT, "Number of the thread in the operating system; that of the process for its main thread.",
            tool="nsys"),
        "name": Column(
            TEXT, "Name of the thread in the operating system; empty where the trace has none.", tool="nsys"),
        "runs_step": Column(FLAG, "Whether the thread ran the step, that is, opened its range.", tool="nsys"),
        "wall_ns": Column(
            COUNT, "Duration of the step; `running_ns`, `off_ns` and `lost_ns` add up to it.", "ns", "nsys", CPU),
        "running_ns": Column(
            AMOUNT.or_missing, "Time that the thread was on a CPU; empty, as all of its kind, without context "
            "switches (`nsys.cpuctxsw`).", "ns", "nsys", CPU),
        "off_ns": Column(AMOUNT.or_missing, "Time that the thread was off the CPU.", "ns", "nsys", CPU),
        "lost_ns": Column(
            AMOUNT.or_missing, "Time of which neither is known, because the trace lost a context switch.",
            "ns", "nsys", CPU),
        "preempted_ns": Column(AMOUNT.or_missing, _PREEMPTED, "ns", "nsys", CPU),
        "switches": Column(AMOUNT.or_missing, "How often the thread left the CPU within the step.", "count", "nsys"),
        "core": Column(
            AMOUNT.or_missing, "Number of the core that the thread ran on for longest; empty if it did not run.",
            tool="nsys"),
        "cores": Column(AMOUNT.or_missing, "Cores that the thread ran on within the step.", "count", "nsys"),
        "migrations": Column(
            AMOUNT.or_missing, "How often the thread went on on another core within the step.", "count", "nsys"),
        "os_calls": Column(
            AMOUNT.or_missing, "Calls of the operating system's libraries (`osrt` among `nsys.traces`), outermost "
            "ones.", "count", "nsys"),
        "os_call_ns": Column(AMOUNT.or_missing, "Time in these calls, most of which waits.", "ns", "nsys", CPU),
        "cuda_calls": Column(
            AMOUNT.or_missing, "Calls of CUDA, outermost ones; empty in a trace without any.", "count", "nsys"),
        "cuda_call_ns": Column(AMOUNT.or_missing, "Time in these calls.", "ns", "nsys", CPU),
        "left_in": Column(
            TEXT, "Call of the operating system, or else of CUDA, in which the thread was off the CPU for longest; "
            "empty if it was in none.", tool="nsys"),
        "left_in_ns": Column(AMOUNT.or_missing, "How long the thread was off the CPU in this call.", "ns", "nsys", CPU),
        "samples": Column(
            AMOUNT.or_missing, "CPU samples of the thread within the step (`nsys.sample`), a millisecond each by "
            "default.", "count", "nsys"),
        "function": Column(TEXT, "Function that most of these samples were in.", tool="nsys"),
        "function_share": Column(
            AMOUNT.or_missing, "Part of the samples that were in this function.", "fraction", "nsys"),
    },
    key=host_tables.WHO,
    holds=_adds_up,
)  # fmt: skip
OFF_CPU = Table(
    columns={
        **select(THREADS.columns, "process", "step", "thread", "name"),
        "cuda_call": Column(
            TEXT, "Call of CUDA in which the thread was when it left the CPU; empty for none.", tool="nsys"),
        "os_call": Column(
            TEXT, "Call of the operating system in which the thread was when it left the CPU; empty for none: it was "
            "taken from the CPU, or waited in a call that nsys does not trace.", tool="nsys"),
        **select(THREADS.columns, "switches", kind=COUNT),
        "off_ns": Column(
            AMOUNT.or_missing, "Time off the CPU after leaving in these calls; adds up to `off_ns` of the thread and "
            "step in `{phase}.nsys-threads.csv`.", "ns", "nsys", CPU),
        "longest_ns": Column(AMOUNT.or_missing, "Longest single time off the CPU.", "ns", "nsys", CPU),
        **select(THREADS.columns, "preempted_ns"),
    },
    key=[*host_tables.WHO, "cuda_call", "os_call"],
)  # fmt: skip
SAMPLES = Table(
    columns={
        **select(THREADS.columns, "process", "thread", "name"),
        "function": Column(TEXT, "Function; `[unresolved]` for all whose names nsys did not find.", tool="nsys"),
        "module": Column(TEXT, "Library or program that the function is of.", tool="nsys"),
        "samples": Column(COUNT, "CPU samples of all steps in which this function itself ran.", "count", "nsys"),
        "share": Column(AMOUNT.or_missing, "Part of the thread's samples.", "fraction", "nsys"),
        "stack_samples": Column(
            COUNT, "CPU samples in which this function ran, or what it called; the same as `samples` without call "
            "stacks (`nsys.backtrace`).", "count", "nsys"),
        "stack_share": Column(AMOUNT.or_missing, "Part of the thread's samples that this is.", "fraction", "nsys"),
    },
    key=["process", "thread", "function", "module"],
)  # fmt: skip
IDLE = Table(
    columns={
        **select(THREADS.columns, "process"),
        "cause": Column(
            TEXT, "Cause of idle time, as in `idle_{cause}_ns` of `{phase}.nsys-steps.csv`: input, synchronisation, "
            "latency, launch or host.", tool="nsys"),
        "thread": Column(COUNT, "Number of the thread that made the next launch.", tool="nsys"),
        **select(THREADS.columns, "name"),
        "os_call": Column(
            TEXT, "Call of the operating system in which this thread was while the GPU was idle; empty for time in "
            "none.", tool="nsys"),
        "kind": Column(
            TEXT, "What a thread waits for in such a call: lock, condition, thread, sleep, poll, socket, memory, "
            "device, file or other.", tool="nsys"),
        "idle_ns": Column(
            AMOUNT.or_missing, "Idle time of the GPU per step with this cause and call; rows add up to `idle_ns` of "
            "`{phase}.nsys-steps.csv`.", "ns", "nsys", GPU),
        "off_ns": Column(
            AMOUNT.or_missing, "Part of `idle_ns` in which the thread was off the CPU; empty without context "
            "switches (`nsys.cpuctxsw`).", "ns", "nsys", CPU),
        "calls": Column(AMOUNT.or_missing, "Calls per step in which the GPU was idle.", "count", "nsys"),
        "woken_by": Column(
            AMOUNT.or_missing, "Number of the thread that ended most of this wait: the last that called what ends "
            "such waits. Empty where that is unknown.", tool="nsys"),
        "file": Column(
            TEXT, "File that most of this time was spent on, without its folder; empty unless nsys records it "
            "(`nsys.extra: [--osrt-file-access=true]`, in newer releases).", tool="nsys"),
        "caller": Column(
            TEXT, "Function that made the longest of these calls, outside of the C library; empty without call "
            "stacks (`nsys.backtrace`).", tool="nsys"),
        "caller_module": Column(TEXT, "Library or program that this function is of.", tool="nsys"),
    },
    key=["process", "cause", "thread", "os_call"],
    holds=_within,
)  # fmt: skip
