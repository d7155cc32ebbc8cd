"""Finds in traced steps what prevents a CUDA graph: waits, memory given back, and launches that differ between steps.

A CUDA graph replays the launches of one step. While a step is captured, the host can neither wait for the GPU nor free
memory, and no later step can launch anything else (CUDA C++ programming guide, CUDA graphs; PyTorch, CUDA semantics).
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if import blocking_calls
from profzoo.what_if.changes import IN_INPUT
from profzoo.what_if.program import BEGIN, CALL, END, Program
from profzoo.what_if.trace_events import KERNEL

# Kinds of obstacles.
WAITS, FREES, DIFFERS, STEERED = "waits", "frees", "differs", "steered"
# What fewer than this number of steps in two do, such as writing a log now and then, is not the step's own. With fewer
# steps than FEW nothing is known about how they differ.
OFTEN, FEW = 0.5, 3


@dataclass(frozen=True)
class GraphObstacle:
    """What prevents a CUDA graph of the step.

    Attributes:
        kind: WAITS, FREES, DIFFERS, or STEERED for launches that differ after a wait.
        per_step: waits, or calls that free memory, per step; of other kinds, the share of steps that differ.
        steps: number of steps that this is seen in.
        evidence: what the trace shows, as a sentence without its full stop.
    """

    kind: str
    per_step: float
    steps: int
    evidence: str


def find_step_waits(program: Program) -> np.ndarray:
    """Return one flag per host row: within a step, the call waits for the GPU, and not for its input.

    Calls that allocate or free memory are not flagged. Of copies only those between host and device are: the host waits
    for no other.
    """
    host = program.host
    crossing = np.bincount(program.gpu["host"], weights=program.gpu["crossing"], minlength=len(host)) > 0
    waits = (host["wait"] != blocking_calls.NOTHING).to_numpy()
    other_copies = host["launches"].to_numpy(dtype=bool) & ~crossing
    return waits & _inside(program) & ~host["allocates"].to_numpy(dtype=bool) & ~other_copies


def first_of_each_wait(program: Program) -> np.ndarray:
    """Return flags of step waits, without the synchronisation that directly follows a copy which was waited for.

    Reading a value copies it and then waits for its stream: that is one wait of the program.
    """
    waits = find_step_waits(program)
    copies = waits & program.host["launches"].to_numpy(dtype=bool)
    follows = np.append(False, copies[:-1])
    return waits & (copies | ~follows)


def find_frees(program: Program) -> np.ndarray:
    """Return one flag per host row: within a step, the call gives memory back to the driver, for which it waits."""
    host = program.host
    waits = (host["wait"] != blocking_calls.NOTHING).to_numpy()
    return waits & _inside(program) & host["allocates"].to_numpy(dtype=bool)


def find_trace_obstacles(program: Program) -> list[GraphObstacle]:
    """Return what prevents a CUDA graph of the traced steps, but for the first one; none if nothing does."""
    found = []
    for kind, rows, what in (
        (WAITS, first_of_each_wait(program), "waits for the GPU"),
        (FREES, find_frees(program), "gives memory back to the driver"),
    ):
        each = _per_step(program, rows)
        steps = int((each > 0).sum())
        if steps > OFTEN * len(each):
            times = f"{each.mean():.0f} times per step" if each.mean() >= 1.5 else "once per step"
            found.append(GraphObstacle(kind, float(each.mean()), steps, f"the step {what} {times}"))
    return [*found, *_differences(program, any(one.kind == WAITS for one in found))]


def _differences(program: Program, waits: bool) -> list[GraphObstacle]:
    """Return the obstacle of launches that differ between steps; waits: whether the steps wait for the GPU."""
    launched = [_launches(program, step) for step in range(min(1, program.steps - 1), program.steps)]
    if len(launched) < FEW:
        return []
    differing = len(launched) - max(Counter(launched).values())
    if differing <= OFTEN * len(launched):
        return []
    counts = [sum(count for _, count in one) for one in launched]
    shown = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"as many ({counts[0]})"
    kind = STEERED if waits else DIFFERS
    evidence = f"its launches differ between steps ({shown} kernels in each of {len(launched)} steps)"
    if waits:
        evidence += ", as values that the host reads steer it"
    return [GraphObstacle(kind, differing / len(launched), differing, evidence)]


def _launches(program: Program, step: int) -> frozenset[tuple[tuple[int, ...], int]]:
    """Return the launch configurations of a step's kernels with their counts, without those of its input."""
    gpu, host = program.gpu, program.host
    calls = gpu["host"].to_numpy()
    mine = (host["step"].to_numpy()[calls] == step) & _inside(program)[calls] & (gpu["kind"] == KERNEL).to_numpy()
    mine &= ~gpu["talking"].to_numpy(dtype=bool)
    counted = gpu.loc[mine, PACKS].value_counts()
    return frozenset(zip(map(tuple, counted.index), counted.to_list(), strict=True))


def _inside(program: Program) -> np.ndarray:
    """Return one flag per host row: it is a call within a step, and not of the step's input."""
    host = program.host
    kinds = host["kind"].to_numpy()
    within = np.cumsum(kinds == BEGIN) > np.cumsum(kinds == END)
    return within & (kinds == CALL) & ~host["part"].isin(IN_INPUT).to_numpy()


def _per_step(program: Program, rows: np.ndarray) -> np.ndarray:
    """Return how many of the flagged host rows each step has, without the first step if there are several."""
    steps = program.host["step"].to_numpy()[rows]
    each = np.bincount(steps, minlength=program.steps)
    return pd.Series(each).to_numpy()[min(1, program.steps - 1) :]
