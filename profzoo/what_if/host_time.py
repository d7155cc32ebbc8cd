"""Splits the host time of a step by cause, and takes out pauses of the host."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS as RANGE_NAMES_PARTS
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.tools.nsys.steps.steps import WAITS_NS
from profzoo.what_if import dependencies
from profzoo.what_if.changes import IN_INPUT, OPERATOR_NS, making_ns
from profzoo.what_if.predicted_gains import OF_HOST
from profzoo.what_if.program import BEGIN, CALL, END, Program, read_flags, replace_tables

# Changes a program so that the host no longer pauses between launches for reasons other than launches and the GPU.
#
# Reasons are other threads that hold the interpreter's lock, work of the step that is not a launch, loading of code for
# the GPU, and copies from pageable memory.

# A pause of other work takes at least this long: five times the longest time that counts as one operator's.
LEAST_NS = 5 * OPERATOR_NS
# Share of the steps in which a pause recurs, to be the step's own and not the machine's.
RECURS = 0.75
# Python's work in this part is the optimizer's, of which other verdicts tell.
OPTIMIZER = RANGE_NAMES_PARTS.index("optimizer") + 1


def remove_lock_waits(program: Program) -> Program:
    """Let the launching thread find the interpreter's lock free."""
    return _shorten_gaps(program, locked_ns(program))


def remove_host_work(program: Program) -> Program:
    """Remove what the host does in the steps besides launching work: what `find_host_work` finds."""
    return _shorten_gaps(program, find_host_work(program))


def remove_loading(program: Program) -> Program:
    """Have all code for the GPU loaded before the steps: remove calls that load it, and the time before them.

    A library or compiler that makes code just then does so before it loads it. Time before such a call up to
    OPERATOR_NS stays, because it is that of the operator.
    """
    host = program.host
    loads = read_flags(host, "loads") & ~read_flags(host, "tries")
    making = np.where(loads, np.minimum(making_ns(program), _own_gap(program)), 0.0)
    return replace_tables(_shorten_gaps(program, making), host={"own": np.where(loads, 0.0, host["own"])})


def remove_pauses(program: Program) -> Program:
    """Remove waits for the interpreter's lock, other work and loading of code, all together."""
    return remove_lock_waits(remove_host_work(remove_loading(program)))


def find_pageable_copies(program: Program) -> np.ndarray:
    """Return one flag per operation: it copies from pageable memory to the device."""
    return read_flags(program.gpu, "pageable")


def pin_copies(program: Program, of_input: bool = False) -> Program:
    """Let the host launch copies from pageable memory without waiting, as it does from pinned memory.

    Their calls then take no longer than blocking_calls.CALL_NS, and the synchronisation that directly follows such a
    copy is removed. The time of a copy on the GPU stays, which pinned memory shortens too: the gain is rather too low.

    of_input: whether only copies of the input are meant.
    """
    host = program.host
    copies = np.bincount(program.gpu["host"], weights=find_pageable_copies(program), minlength=len(host)) > 0
    copies &= host["part"].isin(IN_INPUT).to_numpy() | (not of_input)
    waits = (host["wait"] != dependencies.NOTHING).to_numpy()
    launches = host["launches"].to_numpy(dtype=bool)
    follows = np.append(False, copies[:-1]) & waits & ~launches
    own = host["own"].to_numpy(dtype=float)
    calls = np.where(copies, np.minimum(own, dependencies.CALL_NS), np.where(follows, 0.0, own))
    free = copies | follows
    return replace_tables(
        program,
        host={
            "own": calls,
            "wait": np.where(free, dependencies.NOTHING, host["wait"]),
            "tail": np.where(free, 0.0, host["tail"]),
        },
    )


def locked_ns(program: Program) -> np.ndarray:
    """Return for each host row the ns of its gap in which the launching thread waits for the interpreter's lock."""
    host = program.host
    known = host["locked"].to_numpy(dtype=float) if "locked" in host else np.zeros(len(host))
    return np.minimum(known, host["gap"].to_numpy(dtype=float))


def find_host_work(program: Program) -> np.ndarray:
    """Return for each host row the ns of its gap that the step spends on other work than launching.

    Such a pause takes LEAST_NS or more besides the input, the interpreter's lock and one operator, and does not end
    with loading code. It recurs: pauses at the same place (`_places`) add up to at least as much in RECURS of the
    steps. What exceeds that is the machine's and stays. With fewer than two counted steps nothing is known to recur.
    """
    host = program.host
    first = min(1, program.steps - 1)
    pauses = np.maximum(_own_gap(program) - OPERATOR_NS, 0.0)
    others = read_flags(host, "loads") | read_flags(host, "tries")
    chosen = (pauses >= LEAST_NS) & (host["part"] != OPTIMIZER).to_numpy() & ~others
    counted = program.steps - first
    if counted < 2 or not chosen.any():
        return np.zeros(len(host))
    found = pd.DataFrame({"place": _places(program), "step": host["step"], "ns": np.where(chosen, pauses, 0.0)})
    sums = found.groupby(["place", "step"])["ns"].sum().unstack(fill_value=0.0)
    sums = sums.reindex(columns=range(first, program.steps), fill_value=0.0)
    recurring = sums.quantile(1 - RECURS, axis=1, interpolation="lower")
    whole = found.groupby(["place", "step"])["ns"].transform("sum")
    kept = np.minimum(found["place"].map(recurring) / whole.where(whole > 0, 1.0), 1.0)
    return (found["ns"] * kept).to_numpy(dtype=float)


def _own_gap(program: Program) -> np.ndarray:
    """Return the gap of each host row without its input and its waits for the interpreter's lock, in ns."""
    host = program.host
    gap = host["gap"].to_numpy(dtype=float)
    return np.maximum(gap - np.minimum(host["input"].to_numpy(dtype=float), gap) - locked_ns(program), 0.0)


def _places(program: Program) -> np.ndarray:
    """Return a number for each host row: equal for rows of the same part before launches of the same configuration.

    Rows behind the last launch of their step, and its edges, are places by their kind.
    """
    host, gpu = program.host, program.gpu
    configuration = np.full(len(host), -1)
    kinds = gpu.groupby([*PACKS, "kind"], sort=False).ngroup().to_numpy()
    calls = gpu["host"].to_numpy()
    configuration[calls[::-1]] = kinds[::-1]
    edges = (host["kind"] != CALL).to_numpy()
    configuration[edges] = np.where(host["kind"] == BEGIN, -2, -3)[edges]
    upcoming = pd.Series(configuration).where(configuration != -1).bfill().fillna(-3)
    return pd.DataFrame({"part": host["part"], "next": upcoming}).groupby(["part", "next"]).ngroup().to_numpy()


def _shorten_gaps(program: Program, away: np.ndarray) -> Program:
    """Remove some ns of each host row's gap, at most all of it."""
    gap = program.host["gap"].to_numpy(dtype=float)
    return replace_tables(program, host={"gap": np.maximum(gap - away, 0.0)})


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
