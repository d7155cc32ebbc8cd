"""Simulates a program: when each call and operation begins and ends, and how long each step takes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profzoo.what_if import dependencies
from profzoo.what_if.program import BEGIN, END, Program


@dataclass(frozen=True)
class Ran:
    """Begin and end of a program's host rows and operations, in ns since the first row began."""

    host_starts: np.ndarray
    host_ends: np.ndarray
    gpu_starts: np.ndarray
    gpu_ends: np.ndarray


# Columns of an operation that a simulation needs, in this order.
OPERATION = ("stream", "ns", "latency", "gap", "dep", "dep_gap", "gone")
DEP = OPERATION.index("dep")
NEVER = float("-inf")


class _Gpu:
    """The simulated GPU: streams that run operations in order, each as soon as its dependencies are met."""

    def __init__(self, program: Program):
        gpu = program.gpu
        self.operations = list(zip(*(gpu[name].to_list() for name in OPERATION), strict=True))
        self.begins = [0.0] * len(gpu)
        self.ends: list[float | None] = [None] * len(gpu)
        self.busy: dict[int, float] = {}
        self.latest = 0.0
        # Issued operations that wait, by stream; streams that wait for an operation that has not been issued yet.
        self.held: dict[int, list[tuple[int, float]]] = {}
        self.awaited: dict[int, list[int]] = {}

    def issue(self, index: int, issued: float) -> None:
        stream, dep = self.operations[index][0], self.operations[index][DEP]
        if self.held.get(stream):
            self.held[stream].append((index, issued))
        elif dep >= 0 and self.ends[dep] is None:
            self.held[stream] = [(index, issued)]
            self.awaited.setdefault(dep, []).append(stream)
        else:
            self.place(index, issued)

    def place(self, index: int, issued: float) -> None:
        stream, ns, latency, gap, dep, dep_gap, gone = self.operations[index]
        done = self.busy.get(stream, NEVER)
        # Later operations on the stream still wait for whatever a removed operation waited for.
        begin = max(done, 0.0) if gone else max(issued + latency, done + gap)
        if dep >= 0 and (other := self.ends[dep]) is not None:
            begin = max(begin, other + (0.0 if gone else dep_gap))
        end = begin if gone else begin + ns
        self.busy[stream] = max(done, end)
        self.latest = max(self.latest, end)
        self.begins[index], self.ends[index] = begin, end
        if self.awaited:
            for other_stream in self.awaited.pop(index, ()):
                self.release(other_stream)

    def release(self, stream: int, at_all: bool = False) -> None:
        """Run a stream's operations up to one that depends on an unissued operation; at_all: run this one too."""
        held = self.held.get(stream, [])
        while held:
            index, issued = held[0]
            dep = self.operations[index][DEP]
            if dep >= 0 and self.ends[dep] is None and not at_all:
                self.awaited.setdefault(dep, []).append(stream)
                return
            held.pop(0)
            self.place(index, issued)

    def settle(self) -> None:
        """Run all issued operations: the CPU waits for them and launches nothing meanwhile."""
        for stream in [stream for stream, held in self.held.items() if held]:
            self.release(stream, at_all=True)

    def end(self, index: int) -> float:
        if self.ends[index] is None:
            self.settle()
        return self.ends[index] or 0.0


def simulate(program: Program) -> Ran:
    """Simulate the program once, host row by host row in the order in which the CPU reaches them."""
    host, device = program.host, _Gpu(program)
    rooms = program.gpu["room"].to_list()
    bounds = np.searchsorted(program.gpu["host"].to_numpy(), np.arange(len(host) + 1)).tolist()
    rows = zip(*(host[name].to_list() for name in ("gap", "overlaps", "own", "wait", "target", "tail")), strict=True)
    starts, ends = [], []
    queues: dict[int, list[int]] = {}
    start = free = 0.0
    for (low, high), (gap, overlaps, own, wait, target, tail) in zip(pairwise(bounds), rows, strict=True):
        start = start + gap if overlaps else free + gap
        issued = max(start, device.end(target)) if wait == dependencies.BEFORE else start
        if low < high:
            first = next((index for index in range(low, high) if not device.operations[index][-1]), -1)
            if first >= 0:
                queue = queues.setdefault(device.operations[first][0], [])
                if len(queue) >= rooms[first]:
                    device.end(queue[-rooms[first]])
                    issued = max(issued, device.begins[queue[-rooms[first]]])
                queue.append(first)
            for index in range(low, high):
                device.issue(index, issued)
        end = issued + own
        if wait not in (dependencies.NOTHING, dependencies.BEFORE):
            end = max(end, _until(device, wait, target) + tail)
        starts.append(start)
        ends.append(end)
        free = max(free, end)
    device.settle()
    return Ran(*(np.array(values, dtype=float) for values in (starts, ends, device.begins, device.ends)))


def _until(device: _Gpu, wait: int, target: int) -> float:
    """Return the simulated time in ns at which a call's wait ends."""
    if wait == dependencies.OPERATION:
        return device.end(target)
    device.settle()
    return device.latest if wait == dependencies.ALL else device.busy.get(target, 0.0)


def measured_times(program: Program) -> Ran:
    """Return the measured times of the trace in the same form as simulated ones."""
    origin = int(program.host["start"].iloc[0])
    tables = (program.host["start"], program.host["end"], program.gpu["start"], program.gpu["end"])
    return Ran(*((table.to_numpy() - origin).astype(float) for table in tables))


def step_times(program: Program, ran: Ran) -> np.ndarray:
    """Return the ns of each counted step, shape (steps,); the first step is left out if there are several.

    A step begins when CPU and GPU have finished everything before it, and ends when they have finished the step. The
    definition is the one of profzoo.tools.nsys.steps.steps.where_time_goes.
    """
    begins = np.flatnonzero(program.host["kind"] == BEGIN)
    launched = program.gpu["host"].to_numpy()
    done = np.concatenate(([-np.inf], np.maximum.accumulate(ran.gpu_ends)))
    edges = np.maximum(ran.host_starts[begins], done[np.searchsorted(launched, begins)])
    if len(begins) == 1:
        edges[0] = ran.host_starts[begins[0]]
    last = max(ran.host_starts[program.host["kind"] == END][-1], done[-1])
    return np.diff(np.append(edges, last))[min(1, len(begins) - 1) :]


def simulation_error(program: Program) -> tuple[float, float]:
    """Return the simulation's error: relative error of the step, and median error in ns of the operations' starts."""
    true, again = measured_times(program), simulate(program)
    step, replayed = step_times(program, true).sum(), step_times(program, again).sum()
    return float(replayed / step - 1), float(np.median(np.abs(again.gpu_starts - true.gpu_starts)))
