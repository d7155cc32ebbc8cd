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
    """Simulate the program once.

    Rows of the host that wait for nothing are simulated together. Where operations wait for others so often that this
    would take longer, or for an operation that is launched later, rows are simulated one by one.
    """
    together = _Together(program)
    return together.run() if together.is_faster() else _simulate_rows(program)


def _simulate_rows(program: Program) -> Ran:
    """Simulate host row by host row, in the order in which the CPU reaches them."""
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


# A run of rows takes as long to simulate as so many rows one by one.
RUN_ROWS = 40


class _Together:
    """Simulates runs of host rows at once, by sums and running maxima; a row that waits ends a run. Times are in ns."""

    def __init__(self, program: Program) -> None:
        host, gpu = program.host, program.gpu
        names = ("overlaps", "gap", "own", "wait", "target", "tail")
        self.overlaps, self.gap, self.own, self.wait, self.target, self.tail = (host[name].to_numpy() for name in names)
        self.gone, self.dep = gpu["gone"].to_numpy(dtype=bool), gpu["dep"].to_numpy()
        self.streams, self.stream = np.unique(gpu["stream"].to_numpy(), return_inverse=True)
        gap, self.latency, self.dep_gap, self.work = (
            np.where(self.gone, 0.0, gpu[name]) for name in ("gap", "latency", "dep_gap", "ns")
        )
        self.pace = gap + self.work
        # The first operation of each row, and the number of operations behind them.
        self.row = gpu["host"].to_numpy()
        self.first = np.append(0, np.cumsum(np.bincount(self.row, minlength=len(host))))
        self.limit = self._find_limits(gpu["room"].to_numpy())
        self.needed = np.maximum.accumulate(self.limit)
        self.depending, self.waiting = np.flatnonzero(self.dep >= 0), np.flatnonzero(self.wait != dependencies.NOTHING)
        self.undisturbed = self._find_undisturbed()
        self.host_starts, self.host_ends = np.zeros(len(host)), np.zeros(len(host))
        self.begins, self.ends = np.zeros(len(gpu)), np.zeros(len(gpu))
        self.busy, self.start, self.free = np.full(len(self.streams), NEVER), 0.0, 0.0

    def is_faster(self) -> bool:
        """Return whether rows can be simulated together, and this takes less time than one by one."""
        ordered = (self.dep < np.arange(len(self.dep))).all() and (self.pace >= 0).all() and (self.gap >= 0).all()
        inner = self.dep[self.depending] >= self.first[self.row[self.depending]] - 1
        waits = len(self.waiting) + int(inner.sum())
        return bool(ordered) and waits * RUN_ROWS < len(self.gap) + len(self.dep)

    def _find_limits(self, room: np.ndarray) -> np.ndarray:
        """Return for each row the operation that has to begin before its launch finds room in the queue; -1 for none."""
        limit = np.full(len(self.gap), -1)
        kept = np.flatnonzero(~self.gone)
        launched = kept[np.diff(self.row[kept], prepend=-1) > 0]
        for stream in range(len(self.streams)):
            queue = launched[self.stream[launched] == stream]
            before = np.arange(len(queue)) - room[queue]
            limit[self.row[queue]] = np.where(before >= 0, queue[np.maximum(before, 0)], -1)
        return limit

    def _find_undisturbed(self) -> np.ndarray:
        """Return the starts of the rows if none waited; each row that overlaps belongs to the last that does not."""
        leads = np.flatnonzero(~self.overlaps)
        total = np.cumsum(self.gap, dtype=float)
        offset = total - np.repeat(total[leads], np.diff(np.append(leads, len(total))))
        lengths = np.maximum.reduceat(offset + self.own, leads)
        begins = np.cumsum(self.gap[leads]) + np.append(0.0, np.cumsum(lengths)[:-1])
        return np.repeat(begins, np.diff(np.append(leads, len(total)))) + offset

    def run(self) -> Ran:
        """Simulate all rows."""
        row = 0
        for stop in (*self.waiting.tolist(), len(self.gap)):
            while row < stop:
                row = self._run_rows(row, stop)
            if stop < len(self.gap):
                self._run_waiting(stop)
            row = stop + 1
        return Ran(self.host_starts, self.host_ends, self.begins, self.ends)

    def _run_rows(self, row: int, stop: int) -> int:
        """Simulate rows that wait for nothing but room in a queue; returns the row behind them."""
        known = int(self.first[row])
        stop = row + int(np.searchsorted(self.needed[row:stop], known))
        starts = self._starts(row, stop)
        issued = starts
        if self.needed[stop - 1] >= 0:
            limit = self.limit[row:stop]
            found = np.where(limit >= 0, self.begins[limit], NEVER)
            late = int((found > starts).argmax())
            if late or found[0] > starts[0]:
                if late == 0:
                    late = 1 if self.overlaps[row:stop].any() else stop - row
                    starts, issued = self._find_issued(row, row + late, starts[0], found[:late])
                stop = row + late
                starts, issued = starts[:late], issued[:late]
        self._place(known, int(self.first[stop]), issued[self.row[known : self.first[stop]] - row])
        ends = issued + self.own[row:stop]
        self.host_starts[row:stop], self.host_ends[row:stop] = starts, ends
        self.start, self.free = float(starts[-1]), max(self.free, float(ends.max()))
        return stop

    def _starts(self, row: int, stop: int) -> np.ndarray:
        """Return the starts of rows that wait for nothing."""
        if not self.overlaps[row]:
            return self.undisturbed[row:stop] + (self.free + self.gap[row] - self.undisturbed[row])
        lead = row + int(np.append(~self.overlaps[row:stop], True).argmax())
        before = self.undisturbed[row:lead] + (self.start + self.gap[row] - self.undisturbed[row])
        if lead == stop:
            return before
        free = max(self.free, float((before + self.own[row:lead]).max()))
        return np.append(before, self.undisturbed[lead:stop] + (free + self.gap[lead] - self.undisturbed[lead]))

    def _find_issued(self, row: int, stop: int, start: float, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return when rows start and when they launch; each launches no earlier than its limit.

        start: start of the first row; the others do not overlap.
        """
        own, gap = self.own[row:stop], self.gap[row:stop].astype(float)
        gap[0] = 0.0
        ahead = np.cumsum(gap) + np.append(0.0, np.cumsum(own)[:-1])
        issued = ahead + np.maximum(start, np.maximum.accumulate(limits - ahead))
        return np.append(start, issued[:-1] + own[:-1] + gap[1:]), issued

    def _run_waiting(self, row: int) -> None:
        """Simulate a row that waits for the GPU."""
        wait, target = self.wait[row], self.target[row]
        start = (self.start if self.overlaps[row] else self.free) + self.gap[row]
        issued = max(start, self.ends[target]) if wait == dependencies.BEFORE else start
        if self.limit[row] >= 0:
            issued = max(issued, self.begins[self.limit[row]])
        low, high = self.first[row], self.first[row + 1]
        if low < high:
            self._place(low, high, np.full(high - low, issued))
        end = issued + self.own[row]
        if wait != dependencies.BEFORE:
            end = max(end, self._until(wait, target) + self.tail[row])
        self.host_starts[row], self.host_ends[row] = start, end
        self.start, self.free = float(start), max(self.free, float(end))

    def _until(self, wait: int, target: int) -> float:
        """Return when what a call waits for has ended."""
        if wait == dependencies.OPERATION:
            return self.ends[target]
        busy = self.busy if wait == dependencies.ALL else self.busy[self.streams == target]
        return max(busy.max(initial=0.0), 0.0)

    def _place(self, low: int, high: int, issued: np.ndarray) -> None:
        """Place operations that were launched at these times; one that depends on another of them begins a new run."""
        begin = low
        first, last = np.searchsorted(self.depending, (low, high))
        for place in self.depending[first:last].tolist():
            if self.dep[place] >= begin:
                self._place_run(begin, place, issued[begin - low : place - low])
                begin = place
        self._place_run(begin, high, issued[begin - low :])

    def _place_run(self, low: int, high: int, issued: np.ndarray) -> None:
        """Place operations that do not depend on each other, apart from the order of each stream."""
        if low == high:
            return
        run = slice(low, high)
        earliest = np.where(self.gone[run], 0.0, issued + self.latency[run])
        dep = self.dep[run]
        earliest = np.where(dep >= 0, np.maximum(earliest, self.ends[dep] + self.dep_gap[run]), earliest)
        streams = self.stream[run]
        for stream in np.unique(streams) if (streams != streams[0]).any() else streams[:1]:
            mine = np.flatnonzero(streams == stream)
            work, pace = self.work[run][mine], np.cumsum(self.pace[run][mine])
            ends = pace + np.maximum(self.busy[stream], np.maximum.accumulate(earliest[mine] + work - pace))
            self.begins[low + mine], self.ends[low + mine] = ends - work, ends
            self.busy[stream] = ends[-1]


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
