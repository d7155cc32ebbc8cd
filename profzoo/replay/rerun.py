"""Runs a program: when each call and each operation begins and ends, and how long each step takes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profzoo.replay import waiting
from profzoo.replay.program import BEGIN, END, Program


@dataclass(frozen=True)
class Ran:
    """When rows of a program's host, and its operations, began and ended, in ns from where the first row began."""

    host_starts: np.ndarray
    host_ends: np.ndarray
    gpu_starts: np.ndarray
    gpu_ends: np.ndarray


def run(program: Program) -> Ran:
    """One run, row by row as the CPU comes to it; each operation waits for earlier ones alone."""
    host, gpu = program.host, program.gpu
    bounds = np.searchsorted(gpu["host"].to_numpy(), np.arange(len(host) + 1)).tolist()
    rows = zip(*(host[name].to_list() for name in ("gap", "overlaps", "own", "wait", "target", "tail")), strict=True)
    operations = list(zip(*(gpu[name].to_list() for name in ("stream", "ns", "latency", "gap", "dep", "dep_gap",
                                                             "gone")), strict=True))  # fmt: skip
    starts, ends, begins, dones = [], [], [], []
    busy: dict[int, float] = {}
    queues: dict[int, list[float]] = {}
    start = free = latest = 0.0
    for (low, high), (gap, overlaps, own, wait, target, tail) in zip(pairwise(bounds), rows, strict=True):
        start = start + gap if overlaps else free + gap
        issued, first = start, True
        for stream, ns, latency, space, dep, dep_gap, gone in operations[low:high]:
            done = busy.get(stream, 0.0)
            if gone:
                begins.append(done)
                dones.append(done)
                continue
            if first:
                queue = queues.setdefault(stream, [])
                if len(queue) >= program.room:
                    issued = max(issued, queue[-program.room])
            begin = max(issued + latency, done + space)
            if dep >= 0:
                begin = max(begin, dones[dep] + dep_gap)
            if first:
                queue.append(begin)
                first = False
            begins.append(begin)
            dones.append(begin + ns)
            busy[stream] = max(done, begin + ns)
            latest = max(latest, begin + ns)
        end = issued + own
        if wait == waiting.ALL:
            end = max(end, latest + tail)
        elif wait == waiting.STREAM:
            end = max(end, busy.get(target, 0.0) + tail)
        elif wait == waiting.OPERATION:
            end = max(end, dones[target] + tail)
        starts.append(start)
        ends.append(end)
        free = max(free, end)
    return Ran(*(np.array(values, dtype=float) for values in (starts, ends, begins, dones)))


def measured(program: Program) -> Ran:
    """What the trace has, as if it had been run."""
    origin = int(program.host["start"].iloc[0])
    tables = (program.host["start"], program.host["end"], program.gpu["start"], program.gpu["end"])
    return Ran(*((table.to_numpy() - origin).astype(float) for table in tables))


def walls(program: Program, ran: Ran) -> np.ndarray:
    """Ns of each step that counts: all but the first, where there are more.

    A step lasts from when CPU and GPU were done with what came before, to when they are done with it, as in
    profzoo.tools.nsys.steps.where_time_goes.
    """
    begins = np.flatnonzero(program.host["kind"] == BEGIN)
    launched = program.gpu["host"].to_numpy()
    done = np.concatenate(([-np.inf], np.maximum.accumulate(ran.gpu_ends)))
    edges = np.maximum(ran.host_starts[begins], done[np.searchsorted(launched, begins)])
    if len(begins) == 1:
        edges[0] = ran.host_starts[begins[0]]
    last = max(ran.host_starts[program.host["kind"] == END][-1], done[-1])
    return np.diff(np.append(edges, last))[min(1, len(begins) - 1) :]


def differences(program: Program) -> tuple[float, float]:
    """How far a run is from what was measured: of the step's time, relative, and of operations' starts, median ns."""
    true, again = measured(program), run(program)
    step, replayed = walls(program, true).sum(), walls(program, again).sum()
    return float(replayed / step - 1), float(np.median(np.abs(again.gpu_starts - true.gpu_starts)))
