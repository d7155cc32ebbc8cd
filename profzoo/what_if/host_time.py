"""Splits the host time of a step by cause (as TaxBreak, ISPASS 2026, does), and compares it with the GPU's time."""

from collections.abc import Mapping

import numpy as np

from profzoo.tools.nsys import intervals
from profzoo.tools.nsys.steps import WAITS_NS
from profzoo.what_if.predicted_gains import OF_HOST
from profzoo.what_if.program import BEGIN, END, Program

# The parts of the CPU's time, in this order.
PARTS = ("framework", "input", "library", "launch", "waiting")
# Least speedup for which a change is worth its effort.
WORTH = 1.05
NOTHING_HELPS = "none"


def host_time_parts(program: Program) -> dict[str, float]:
    """Return the CPU time per step by part, as measured, and the GPU's work per step.

    The first step is left out if there are several. Times are in ns. Keys:
        `steps`: number of steps.
        `cpu_ns`: CPU time from the begin of the first of these steps to the end of the last, per step; the sum of the
            five parts that follow.
        `framework_ns`: time in Python and the framework, between CUDA calls.
        `input_ns`: time between CUDA calls in the ranges `data` and `transfer`.
        `library_ns`: time between CUDA calls in cuDNN or cuBLAS, if the trace has these, and calls that launch nothing.
        `launch_ns`: time in launching calls, without their waiting.
        `waiting_ns`: time that calls wait.
        `busy_ns`: time in which the GPU did anything.
        `balance`: CPU time without waiting over `busy_ns`; above 1 the step waits for the CPU.
        `launches`: launching calls per step; a CUDA graph is one.
        `launch_call_ns`: median duration of a launching call.
        `latency_ns`: median time from a launching call's start to its operation's start on an idle GPU, or NaN.
    """
    host = program.host
    begins, ends = np.flatnonzero(host["kind"] == BEGIN), np.flatnonzero(host["kind"] == END)
    first = begins[min(1, len(begins) - 1)]
    counted = slice(first + 1, ends[-1] + 1)
    steps = len(begins) - min(1, len(begins) - 1)
    parts = {name: values[counted].sum() / steps for name, values in _split(program, int(first)).items()}
    cpu = float(host["start"].iloc[ends[-1]] - host["start"].iloc[first]) / steps
    return {
        "steps": steps,
        "cpu_ns": cpu,
        **{f"{name}_ns": float(parts[name]) for name in PARTS},
        **_of_gpu(program, int(first), steps, cpu - float(parts["waiting"])),
    }


def _split(program: Program, first: int) -> Mapping[str, np.ndarray]:
    """Return per part the ns of each host row; every moment from the row `first` on belongs to one part."""
    host = program.host
    starts, ends = host["start"].to_numpy(dtype=float), host["end"].to_numpy(dtype=float)
    # A call that began before these steps and lasts into them is not counted.
    free = np.full(len(host), starts[first])
    free[first + 1 :] = np.maximum(np.maximum.accumulate(ends[first:])[:-1], starts[first])
    between = np.maximum(starts - free, 0)
    called = np.maximum(ends - np.maximum(starts, free), 0)
    waiting = np.minimum(host["waited"].to_numpy(dtype=float), called)
    feeding = np.minimum(host["input"].to_numpy(dtype=float), between)
    library = np.minimum(host["library"].to_numpy(dtype=float), between - feeding)
    launches = host["launches"].to_numpy()
    own = called - waiting
    return {
        "framework": between - feeding - library,
        "input": feeding,
        "library": library + np.where(launches, 0, own),
        "launch": np.where(launches, own, 0),
        "waiting": waiting,
    }


def _of_gpu(program: Program, first: int, steps: int, working: float) -> dict[str, float]:
    """Return the GPU's work per step from a row of the host on; working: the CPU's ns without waiting."""
    host, gpu = program.host, program.gpu
    mine = gpu[gpu["host"] > first]
    busy = intervals.total(intervals.union(mine[["start", "end"]].to_numpy(dtype=np.int64))) / steps
    begun = np.maximum.accumulate(np.append(0, gpu["end"].to_numpy()))[:-1][mine.index]
    calls = mine["host"].to_numpy()
    start = host["start"].to_numpy()[calls]
    idle = (begun <= start) & ~mine["node"].to_numpy()
    # A graph's call launches many operations, but counts once.
    took = (host["end"] - host["start"]).to_numpy()[np.unique(calls)]
    launching = took[took <= WAITS_NS]
    return {
        "busy_ns": busy,
        "balance": working / busy if busy else np.nan,
        "launches": len(np.unique(calls)) / steps,
        "launch_call_ns": float(np.median(launching)) if len(launching) else np.nan,
        "latency_ns": float(np.median((mine["start"].to_numpy() - start)[idle])) if idle.any() else np.nan,
    }


def best_host_change(gains: Mapping[str, float]) -> str:
    """Return the name of the change to the CPU's work that gains most; NOTHING_HELPS if all gains are below WORTH.

    gains: predicted speedup by name of a change in predicted_gains.PANEL.

    >>> best_host_change({"host_2x": 1.4, "half_the_operators": 1.3, "short_kernels_fused": 1.1, "graph": 2.5})
    'graph'
    >>> best_host_change({"host_2x": 1.01, "graph": 1.02})
    'none'
    """
    known = {name: gains[name] for name in OF_HOST if name in gains}
    best = max(known, key=lambda name: known[name], default=NOTHING_HELPS)
    return best if known and known[best] >= WORTH else NOTHING_HELPS
