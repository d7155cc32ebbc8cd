"""Runs communication beside all other operations, as if nothing waited for it."""

import numpy as np
import pandas as pd

from profzoo.what_if.program import Program, replace_tables

# Number of the simulated stream that runs overlapped communication.
APART = -2


def overlap_communication(program: Program) -> Program:
    """Run kernels that communicate beside all others.

    No other operation waits for them any longer. They still wait for each other and for what they waited for before.
    The first step is not counted, and its communication is made as short as later steps have it: a process that waits
    there until the others have started would otherwise still communicate when counted steps have long computed.
    """
    gpu = program.gpu
    talking = gpu["talking"].to_numpy(dtype=bool)
    dep = gpu["dep"].to_numpy()
    # A communication waits for the last operation before it on its stream that is not a communication itself.
    previous = np.full(len(gpu), -1)
    for rows in gpu.groupby("stream").indices.values():
        at = np.where(~talking[rows], np.arange(len(rows)), -1)
        last = np.concatenate(([-1], np.maximum.accumulate(at)[:-1]))
        previous[rows] = np.where(last >= 0, rows[np.maximum(last, 0)], -1)
    own = np.where(dep >= 0, dep, previous)
    free = np.where((dep >= 0) & talking[dep] & ~talking, -1, dep)
    return replace_tables(
        program,
        gpu={
            "stream": np.where(talking, APART, gpu["stream"]),
            "dep": np.where(talking, own, free),
            "ns": _shorten_first(program, talking),
        },
    )


def _shorten_first(program: Program, talking: np.ndarray) -> np.ndarray:
    """Return ns of all operations; communication of the first step is no longer than the median of later steps.

    Operations correspond by their order within their steps, counted among those that communicate.
    """
    ns = program.gpu["ns"].to_numpy(dtype=float).copy()
    rows = np.flatnonzero(talking)
    steps = program.host["step"].to_numpy()[program.gpu["host"].to_numpy()[rows]]
    found = pd.DataFrame({"row": rows, "step": steps, "ns": ns[rows]})
    found["place"] = found.groupby("step").cumcount()
    usual = found[found["step"] > 0].groupby("place")["ns"].median()
    first = found[found["step"] <= 0]
    ns[first["row"]] = np.fmin(first["ns"], first["place"].map(usual))
    return ns
