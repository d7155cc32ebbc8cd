"""Fits how long a process waits for others in communication, which the tracer of all processes lengthens."""

from dataclasses import replace

import numpy as np
import pandas as pd

from profzoo.tools.nsys import ranks
from profzoo.what_if import changes
from profzoo.what_if.program import Program
from profzoo.what_if.simulator import simulate, step_times

# Steps of the bisection; the share of waiting is then known to one in a thousand.
HALVINGS = 10


def find_waiting_share(table: pd.DataFrame) -> float:
    """Return the part of the first process's communication in which it waits for others, 0 to 1.

    The process that communicates for the shortest time waits for none.

    table: a row per process of the cell, profzoo.tools.nsys.ranks.TABLE.

    >>> find_waiting_share(pd.DataFrame({"rank": [1, 0], "communication_ns": [3.0, 4.0]}))
    0.25
    """
    communication = table.sort_values("rank")["communication_ns"]
    own = float(communication.iloc[0])
    return float(ranks.find_waits(communication).iloc[0]) / own if own > 0 else 0.0


def keep_waits(program: Program, kept: float) -> Program:
    """Return the program with a part of its waits for other processes, 0 to 1."""
    waiting = program.waiting or 0.0
    left = 1 - waiting * (1 - kept)
    talks = program.gpu["talking"].to_numpy(dtype=bool)
    shorter = changes.speed_up_kernels(program, talks, 1 / max(left, 1e-3))
    return replace(shorter, waiting=waiting * kept / max(left, 1e-3))


def fit_waits(program: Program, step_ns: float, slowest: float) -> Program:
    """Shorten waits for other processes until the step is no longer than the unprofiled one, if that is enough.

    A tracer slows the CPU of every process. Where the CPU is slow, processes come to their communication at different
    times, and the earlier ones wait in it. The GPU's time then is longer than it is without the tracer.

    Args:
        step_ns: the unprofiled step in ns.
        slowest: largest slowdown of the CPU to assume: with a CPU so much faster, the GPU alone is the limit.
    """
    if not program.waiting:
        return program

    def step(kept: float) -> float:
        fast = changes.speed_up_host(keep_waits(program, kept), slowest)
        return float(step_times(fast, simulate(fast)).mean())

    if step(1.0) <= step_ns:
        return program
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if step(middle) > step_ns else (middle, high)
    return keep_waits(program, low)


def move_waits(program: Program, gone: np.ndarray, to: np.ndarray) -> Program:
    """Lengthen operations that stay by the waits for other processes in those that are left out.

    Args:
        program: the program, which still has the operations that are left out.
        gone: one flag per operation: it is left out.
        to: for each operation, the number of the operation that takes over its wait; -1 for none.
    """
    ns = program.gpu["ns"].to_numpy(dtype=float).copy()
    moved = gone & (to >= 0)
    np.add.at(ns, to[moved], (program.waiting or 0.0) * ns[moved])
    return replace(program, gpu=program.gpu.assign(ns=ns))
