"""Finds in traced steps what prevents a CUDA graph: waits, and launches that differ between steps.

A CUDA graph replays the launches of one step. While a step is captured, the host cannot wait for the GPU, and no later
step can launch anything else (CUDA C++ programming guide, CUDA graphs; PyTorch, CUDA semantics). A step that gives
memory back can be captured: torch keeps the memory of a graph that is being captured.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from profzoo.tools.nsys.events.launches import PACKS
from profzoo.what_if import dependencies
from profzoo.what_if.changes import IN_INPUT
from profzoo.what_if.program import BEGIN, CALL, END, Program, read_flags
from profzoo.what_if.trace_events import KERNEL

# Kinds of obstacles.
WAITS, DIFFERS, STEERED = "waits", "differs", "steered"
# What fewer than this number of steps in two do, such as writing a log now and then, is not the step's own. With fewer
# steps than FEW nothing is known about how they differ.
OFTEN, FEW = 0.5, 3


@dataclass(frozen=True)
class GraphObstacle:
    """What prevents a CUDA graph of the step.

    Attributes:
        kind: WAITS, DIFFERS, or STEERED for launches that differ after a wait.
        per_step: waits per step; of other kinds, the share of steps that differ.
        steps: number of steps that this is seen in.
        evidence: what the trace shows, as a sentence without its full stop.
    """

    kind: str
    per_step: float
    steps: int
    evidence: str


def find_step_waits(program: Program) -> np.ndarray:
    """Return one flag per host row: within a step, the call waits for the GPU, and not for its input.

    Calls that allocate or free memory are not flagged, nor are those of a tuner. Of copies only those between host and
    device are: the host waits for no other.
    """
    host = program.host
    crossing = np.bincount(program.gpu["host"], weights=program.gpu["crossing"], minlength=len(host)) > 0
    waits = (host["wait"] != dependencies.NOTHING).to_numpy()
    other_copies = host["launches"].to_numpy(dtype=bool) & ~crossing
    others = other_copies | read_flags(host, "tries")
    return waits & _inside(program) & ~host["allocates"].to_numpy(dtype=bool) & ~others


def first_of_each_wait(program: Program) -> np.ndarray:
    """Return flags of step waits, without the synchronisation that directly follows a copy which was waited for.

    Reading a value copies it and then waits for its stream: that is one wait of the program.
    """
    waits = find_step_waits(program)
    copies = waits & program.host["launches"].to_numpy(dtype=bool)
    follows = np.append(False, copies[:-1])
    return waits & (copies | ~follows)


def describe_waits(per_step: float, steps: int) -> GraphObstacle:
    """Return the obstacle of waits; steps: number of steps in which they are seen."""
    return GraphObstacle(WAITS, per_step, steps, f"the step waits for the GPU {count_per_step(per_step)}")


def count_per_step(calls: float) -> str:
    """Say how often something happens in a step.

    >>> count_per_step(1.0), count_per_step(62.0)
    ('once per step', '62 times per step')
    """
    return "once per step" if calls < 1.5 else f"{calls:.0f} times per step"


def find_trace_obstacles(program: Program) -> list[GraphObstacle]:
    """Return what prevents a CUDA graph of the traced steps, but for the first one; none if nothing does."""
    each = _per_step(program, first_of_each_wait(program))
    steps, mean = int((each > 0).sum()), float(each.mean())
    waits = steps > OFTEN * len(each)
    found = [describe_waits(mean, steps)] if waits else []
    return [*found, *_differences(program, waits)]


def steps_differ(program: Program) -> bool:
    """Return whether traced steps, but for the first one, launch other kernels or kernels of other shapes."""
    return len(set(_launches_per_step(program))) > 1


def _differences(program: Program, waits: bool) -> list[GraphObstacle]:
    """Return the obstacle of launches that differ between steps; waits: whether the steps wait for the GPU."""
    launched = _launches_per_step(program)
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


def _launches_per_step(program: Program) -> list[frozenset[tuple[tuple[int, ...], int]]]:
    """Return the launch configurations of each step's kernels with their counts, without its input and a tuner's.

    The first step is left out if there are several.
    """
    gpu, host = program.gpu, program.host
    calls = gpu["host"].to_numpy()
    mine = _inside(program)[calls] & (gpu["kind"] == KERNEL).to_numpy() & ~gpu["talking"].to_numpy(dtype=bool)
    mine &= ~read_flags(gpu, "tried")
    steps = host["step"].to_numpy()[calls[mine]]
    counted = gpu.loc[mine, PACKS].assign(step=steps).groupby(["step", *PACKS], sort=False).size()
    found: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for (step, *configuration), count in zip(counted.index, counted.to_list(), strict=True):
        found.setdefault(step, []).append((tuple(configuration), count))
    return [frozenset(found.get(step, ())) for step in range(min(1, program.steps - 1), program.steps)]


def _inside(program: Program) -> np.ndarray:
    """Return one flag per host row: it is a call within a step, and not of the step's input."""
    host = program.host
    kinds = host["kind"].to_numpy()
    within = np.cumsum(kinds == BEGIN) > np.cumsum(kinds == END)
    return within & (kinds == CALL) & ~host["part"].isin(IN_INPUT).to_numpy()


def _per_step(program: Program, rows: np.ndarray) -> np.ndarray:
    """Return how many of the flagged host rows each step has, without the first step if there are several."""
    steps = program.host["step"].to_numpy()[rows]
    return np.bincount(steps, minlength=program.steps)[min(1, program.steps - 1) :]
