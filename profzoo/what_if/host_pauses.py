"""Changes a program so that the host no longer pauses between launches for reasons other than launches and the GPU.

Reasons are other threads that hold the interpreter's lock, work of the step that is no launch, loading of code for the
GPU, and copies from pageable memory.
"""

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if import blocking_calls
from profzoo.what_if.changes import OPERATOR_NS
from profzoo.what_if.program import BEGIN, CALL, Program, replace_tables

# A pause of other work takes at least this long: five times the longest time that counts as one operator's.
LEAST_NS = 5 * OPERATOR_NS
# Share of the steps in which a pause recurs, to be the step's own and not the machine's.
RECURS = 0.75
# Python's work in this part is the optimizer's, of which other verdicts tell.
OPTIMIZER = PARTS.index("optimizer") + 1


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
    if "loads" not in host:
        return program
    loads = host["loads"].to_numpy(dtype=bool)
    making = np.where(loads, np.maximum(_own_gap(program) - OPERATOR_NS, 0.0), 0.0)
    return replace_tables(_shorten_gaps(program, making), host={"own": np.where(loads, 0.0, host["own"])})


def remove_pauses(program: Program) -> Program:
    """Remove waits for the interpreter's lock, other work and loading of code, all together."""
    return remove_lock_waits(remove_host_work(remove_loading(program)))


def find_pageable_copies(program: Program) -> np.ndarray:
    """Return one flag per operation: it copies from pageable memory to the device."""
    gpu = program.gpu
    return gpu["pageable"].to_numpy(dtype=bool) if "pageable" in gpu else np.zeros(len(gpu), dtype=bool)


def pin_copies(program: Program) -> Program:
    """Let the host launch copies from pageable memory without waiting, as it does from pinned memory.

    Their calls then take no longer than blocking_calls.CALL_NS, and the synchronisation that directly follows such a
    copy is removed. The time of a copy on the GPU stays, which pinned memory shortens too: the gain is rather too low.
    """
    host = program.host
    copies = np.bincount(program.gpu["host"], weights=find_pageable_copies(program), minlength=len(host)) > 0
    waits = (host["wait"] != blocking_calls.NOTHING).to_numpy()
    launches = host["launches"].to_numpy(dtype=bool)
    follows = np.append(False, copies[:-1]) & waits & ~launches
    own = host["own"].to_numpy(dtype=float)
    calls = np.where(copies, np.minimum(own, blocking_calls.CALL_NS), np.where(follows, 0.0, own))
    free = copies | follows
    return replace_tables(
        program,
        host={
            "own": calls,
            "wait": np.where(free, blocking_calls.NOTHING, host["wait"]),
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
    loads = host["loads"].to_numpy(dtype=bool) if "loads" in host else np.zeros(len(host), dtype=bool)
    chosen = (pauses >= LEAST_NS) & (host["part"] != OPTIMIZER).to_numpy() & ~loads
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
