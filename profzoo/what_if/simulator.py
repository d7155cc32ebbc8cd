"""Simulates a program: when each call and operation begins and ends, and how long each step takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pandas as pd

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

    What happens between rows and operations that wait is simulated at once where it can be, else one by one. Both ways
    agree but for rounding, which stays below 1e-13 of the program's length.
    """
    there = len(program.host) and len(program.gpu)
    return (_Stretches(program).run() if there else None) or _simulate_rows(program)


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


# So many orders are kept for further programs, because changes of one search lead to few: such as with and without a
# graph, and with and without waits.
KEPT_ORDERS = 8


class _Order:
    """What waits for what in a program: stretches of rows and of operations that can be simulated at once.

    A row that waits is a stretch of its own, and so are the rows between two of them. Within a stretch, each row starts
    so long after the first, whatever came before. Operations of a stream end by running maxima, except for the `stops`:
    those that wait for another operation or are waited for, and the last of each stretch on its stream. None of it
    depends on times, so that most changes leave it as it is.

    Rows, operations and stretches are numbered from 0. `here` orders operations by stream.
    """

    recent: ClassVar[tuple["_Order", ...]] = ()

    def __init__(self, columns: Sequence[np.ndarray]) -> None:
        self.columns = [values.copy() for values in columns]
        self.overlaps, self.wait, self.target, self.stream, self.dep, self.row = self.columns
        self._find_stretches()
        self._sort_operations()
        self.possible = self._find_stops()

    @classmethod
    def of(cls, program: Program) -> "_Order":
        """Return the order of a program, which is often that of a program shortly before."""
        names = ("overlaps", "wait", "target"), ("stream", "dep", "host")
        tables = zip((program.host, program.gpu), names, strict=True)
        columns = [table[name].to_numpy() for table, some in tables for name in some]
        known = next((one for one in cls.recent if all(map(np.array_equal, one.columns, columns))), None)
        found = known or cls(columns)
        cls.recent = (found, *(one for one in cls.recent if one is not found))[:KEPT_ORDERS]
        return found

    def _find_stretches(self) -> None:
        """Split the rows into stretches.

        A row that overlaps starts by the start of the row before, until the first that does not, the lead. So rows
        that overlap are a stretch of their own behind a row that waits.
        """
        rows = len(self.wait)
        overlaps = self.overlaps.astype(bool)
        overlaps[0] = False
        self.leads = np.flatnonzero(~overlaps)
        self.all_lead = len(self.leads) == rows
        # How many rows belong to each lead.
        self.of_lead = np.diff(self.leads, append=rows)
        waiting = self.wait != dependencies.NOTHING
        begins = waiting.copy()
        begins[0] = True
        begins[1:] |= waiting[:-1]
        self.waiting = np.flatnonzero(waiting)
        behind = np.searchsorted(self.leads, self.waiting + 1)
        begins[self.leads[behind[behind < len(self.leads)]]] = True
        self.heads = np.flatnonzero(begins)
        self.sizes = np.diff(self.heads, append=rows)
        self.follows = overlaps[self.heads]

    def _sort_operations(self) -> None:
        """Number the streams, and sort operations by them."""
        self.first = np.append(0, np.cumsum(np.bincount(self.row, minlength=len(self.wait))))
        codes, self.streams = pd.factorize(self.stream)
        self.codes = codes.astype(np.int16)
        self.edges = np.append(0, np.cumsum(np.bincount(codes)))
        # All operations of one stream are in order.
        self.here = np.argsort(self.codes, kind="stable") if len(self.streams) > 1 else slice(None)

    def _find_stops(self) -> bool:
        """Choose the stops; returns whether the host never waits while one of them waits for a later launch."""
        self.depends = np.flatnonzero(self.dep >= 0)
        if not len(self.waiting) and not len(self.depends):
            self.stops = self.dep_of = self.awaited = np.zeros(0, dtype=np.int64)
            self.highs, self.spans = np.zeros(len(self.heads), dtype=np.int64), np.zeros((0, 2), dtype=np.int64)
            return True
        waits, targets = self.wait[self.waiting], self.target[self.waiting]
        launched = np.where(waits == dependencies.BEFORE, self.first[self.waiting], self.first[self.waiting + 1])
        single = np.isin(waits, (dependencies.BEFORE, dependencies.OPERATION)) & (targets >= 0) & (targets < launched)
        stretch = np.repeat(np.arange(len(self.heads)), self.sizes)[self.row]
        places, last = np.arange(len(self.dep))[self.here], np.ones(len(self.dep), dtype=bool)
        last[:-1] = (np.diff(stretch[self.here]) != 0) | (np.diff(self.codes[self.here]) != 0)
        chosen = np.zeros(len(self.dep), dtype=bool)
        for some in (self.depends, self.dep[self.depends], targets[single], places[last]):
            chosen[some] = True
        self.stops = np.flatnonzero(chosen)
        self.highs = np.searchsorted(self.stops, self.first[self.heads + self.sizes])
        self.spans = self._find_spans()
        if (stretch[self.spans[:, 0]] != stretch[self.spans[:, 1]]).any():
            return False
        for low, high in np.searchsorted(self.stops, self.spans + np.array([0, 1])).tolist():
            if (ordered := self._order_span(self.stops[low:high])) is None:
                return False
            self.stops[low:high] = ordered
        number = np.full(len(chosen), -1)
        number[self.stops] = np.arange(len(self.stops))
        dep = self.dep[self.stops]
        self.dep_stops, self.dep_of = np.where(dep >= 0, number[dep], -1), number[self.dep[self.depends]]
        self.awaited = np.where(single, number[np.where(single, targets, 0)], -1)
        # Places of the stops in the order of streams, and the first place behind the stop before each.
        self.places = np.flatnonzero(chosen[self.here])
        self.behind = np.append(0, self.places[:-1] + 1)
        self.by_stream = number[places[self.places]]
        return True

    def _find_spans(self) -> np.ndarray:
        """Return the first and the last of operations of which one waits for a later launch, shape (spans, 2)."""
        waits = np.flatnonzero(self.dep >= np.arange(len(self.dep)))
        until = np.maximum.accumulate(self.dep[waits])
        apart = waits[1:] > until[:-1]
        begins, ends = np.append(True, apart)[: len(waits)], np.append(apart, True)[: len(waits)]
        return np.stack([waits[begins], until[ends]], axis=1)

    def _order_span(self, stops: np.ndarray) -> list[int] | None:
        """Return stops in an order in which none waits for a later one; None if some wait for each other."""
        columns = stops.tolist(), self.dep[stops].tolist(), self.codes[stops].tolist()
        left = {stop: (other, code) for stop, other, code in zip(*columns, strict=True)}
        ordered: list[int] = []
        while left:
            before = len(ordered)
            held: set[int] = set()
            for stop, (other, code) in list(left.items()):
                if code in held or other in left:
                    held.add(code)
                else:
                    ordered.append(stop)
                    del left[stop]
            if len(ordered) == before:
                return None
        return ordered

    def find_limits(self, gone: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows whose launch needs room in a queue, and the operations that have to begin before."""
        kept = np.flatnonzero(~gone)
        launched = kept[np.flatnonzero(np.diff(self.row[kept], prepend=-1))]
        least = room.min()
        queues, limits = [launched[:0]], [launched[:0]]
        for code in range(len(self.streams)):
            mine = launched[self.codes[launched] == code] if len(self.streams) > 1 else launched
            # The first of them find room in any case.
            later = mine[least:]
            before = np.arange(least, least + len(later)) - room[later]
            full = np.flatnonzero(before >= 0)
            queues.append(later[full])
            limits.append(mine[before[full]])
        return self.row[np.concatenate(queues)], np.concatenate(limits)


# Queues that are full make rows wait that did not wait in the run before. After so many runs, all is simulated row by
# row, which takes as long.
MOST_RUNS = 12
# When each row starts, and launches, at the earliest.
Bounds = tuple[np.ndarray, np.ndarray]


class _Stretches:
    """Simulates a program's stretches one after the other, with the stops in them, and fills in all else.

    Room in queues is found by repetition: where an operation that had to begin first began too late, the row launches
    no earlier than that in the next run. Times are in ns.
    """

    def __init__(self, program: Program) -> None:
        host, gpu = program.host, program.gpu
        self.order = _Order.of(program)
        self.gap, self.own, self.tail = (host[name].to_numpy(dtype=float) for name in ("gap", "own", "tail"))
        self.gone, self.room = gpu["gone"].to_numpy(dtype=bool), gpu["room"].to_numpy()
        self.latency, self.work, self.space, self.dep_space = (
            gpu[name].to_numpy(dtype=float) for name in ("latency", "ns", "gap", "dep_gap")
        )
        if self.gone.any():
            self.work, self.space, self.dep_space = (
                np.where(self.gone, 0.0, one) for one in (self.work, self.space, self.dep_space)
            )

    def run(self) -> Ran | None:
        """Simulate all rows; None where this cannot be done at once.

        That is so if the host waits while an operation waits for a later launch, if queues are full at ever new places,
        and if times of the host are negative.
        """
        if not self.order.possible or min(self.gap.min(), self.own.min()) < 0:
            return None
        rows, limits = self.order.find_limits(self.gone, self.room)
        if self._fill_meanwhile(rows, limits):
            return None
        self._add_up()
        bounds: Bounds | None = None
        for _ in range(MOST_RUNS):
            ran, issued = self._run_once(bounds)
            began = ran.gpu_starts[limits]
            if (began <= issued[rows]).all():
                return ran
            bounds = self._bound(rows, began)
        return None

    def _fill_meanwhile(self, rows: np.ndarray, limits: np.ndarray) -> bool:
        """Return whether a launch needs the room of an operation that may still wait for a later launch then."""
        low, high = self.order.spans.T
        if not len(low):
            return False
        span = np.searchsorted(low, limits, side="right") - 1
        return bool(((span >= 0) & (self.order.first[rows] <= high[span])).any())

    def _add_up(self) -> None:
        """Find the start of each row after the first of its stretch, and of operations without waits."""
        order = self.order
        gap, lengths, self.behind_lead = self.gap, self.own, None
        if not order.all_lead:
            total, gap = np.cumsum(gap), gap[order.leads]
            self.behind_lead = total - np.repeat(total[order.leads], order.of_lead)
            lengths = np.maximum.reduceat(self.behind_lead + self.own, order.leads)
        self.passed = np.cumsum(gap + lengths)
        starts = self._of_leads(self.passed - lengths)
        self.offset = starts - np.repeat(starts[order.heads], order.sizes)
        self.lengths = np.maximum.reduceat(self.offset + self.own, order.heads)
        self.busy = np.maximum(self.space + self.work, 0.0)[order.here]
        self.ended = np.cumsum(self.busy)

    def _of_leads(self, starts: np.ndarray) -> np.ndarray:
        """Return the starts of all rows from those of the leads."""
        return starts if self.behind_lead is None else np.repeat(starts, self.order.of_lead) + self.behind_lead

    def _bound(self, rows: np.ndarray, began: np.ndarray) -> Bounds:
        """Return the bounds of all rows if these rows launch no earlier than at these times."""
        bounds = np.full(len(self.gap), NEVER)
        bounds[rows] = began
        ends = bounds + self.own
        if self.behind_lead is not None:
            ends = np.maximum.reduceat(ends, self.order.leads)
        done = self.passed + np.maximum.accumulate(ends - self.passed)
        starts = self._of_leads(np.append(NEVER, done[:-1]) + self.gap[self.order.leads])
        return starts, np.maximum(starts, bounds)

    def _run_once(self, bounds: Bounds | None) -> tuple[Ran, np.ndarray]:
        """Simulate all rows; returns also when each row launches. bounds: None for no bounds."""
        begun, bases, waited, ends = self._run_stretches(bounds)
        starts = np.repeat(begun, self.order.sizes) + self.offset
        issued = starts if bases == begun else np.repeat(bases, self.order.sizes) + self.offset
        if bounds is not None:
            starts, issued = np.maximum(starts, bounds[0]), np.maximum(issued, bounds[1])
        host_ends = issued + self.own
        host_ends[self.order.waiting] = waited
        return Ran(starts, host_ends, *self._fill_in(issued, np.array(ends))), issued

    def _run_stretches(self, bounds: Bounds | None) -> tuple[list[float], list[float], list[float], list[float]]:
        """Return each stretch's start and the launch of its first row, and the ends of rows that wait and of stops."""
        order = self.order
        stretches, stops = self._list_stretches(bounds), self._list_stops(bounds)
        codes = {stream: code for code, stream in enumerate(order.streams.tolist())}
        busy = [NEVER] * len(codes)
        begun: list[float] = []
        bases: list[float] = []
        waited: list[float] = []
        ends: list[float] = []
        start = free = 0.0
        low = 0
        for high, follows, gap, offset, length, wait, stream, target, tail, bound, last_start, last_end in stretches:
            first = base = (start if follows else free) + gap
            if wait:
                base = max(base, bound, ends[target] if wait == dependencies.BEFORE and target >= 0 else NEVER)
            for code, between, after_base, own_base, after, own_after, space, work, dep, dep_space in stops[low:high]:
                # Conditions, because `max` takes twice as long.
                done = busy[code] + between
                if (other := base + after_base) > done:
                    done = other
                if after > done:
                    done = after
                begin = done + space
                if (other := base + own_base) > begin:
                    begin = other
                if own_after > begin:
                    begin = own_after
                if dep >= 0 and (other := ends[dep] + dep_space) > begin:
                    begin = other
                end = begin + work
                ends.append(end)
                busy[code] = end if end > done else done
            low, end = high, base + length
            if wait:
                if wait == dependencies.OPERATION:
                    end = max(end, (ends[target] if target >= 0 else 0.0) + tail)
                elif wait == dependencies.ALL:
                    end = max(end, max(busy, default=0.0) + tail, tail)
                elif wait == dependencies.STREAM:
                    done = busy[codes[stream]] if stream in codes else NEVER
                    end = max(end, (done if done > NEVER else 0.0) + tail)
                waited.append(end)
            begun.append(first)
            bases.append(base)
            start, free = max(first + offset, last_start), max(free, end, last_end)
        return begun, bases, waited, ends

    def _list_stretches(self, bounds: Bounds | None) -> Iterable[tuple]:
        """Yield what `_run_stretches` needs of each stretch.

        Columns: number of the first stop behind it; whether it begins by the start of the row before, and not by its
        end; gap before it; time from its first row's start to its last row's start and to its latest end; what its row
        waits for, as stream and as stop, and the time from then to the row's end; earliest launch of its first row,
        start of its last, and end.
        """
        order, heads = self.order, self.order.heads
        lasts, never = heads + order.sizes - 1, [NEVER] * len(heads)
        wait, target, tail = order.wait[heads], np.full(len(heads), -1), self.tail[heads]
        target[np.searchsorted(heads, order.waiting)] = order.awaited
        columns = (order.highs, order.follows, self.gap[heads], self.offset[lasts], self.lengths, wait,
                   order.target[heads], target, tail)  # fmt: skip
        edges = [never] * 3
        if bounds is not None:
            starts, launches = bounds
            ends = np.maximum.accumulate(launches + self.own)
            edges = [launches[heads].tolist(), starts[lasts].tolist(), ends[lasts].tolist()]
        return zip(*(one.tolist() for one in columns), *edges, strict=True)

    def _list_stops(self, bounds: Bounds | None) -> list[tuple]:
        """Return what `_run_stretches` needs of each stop.

        Columns: stream; time of all operations since the stop before; when these end and the stop begins, after the
        first row of the stretch; when these end and it begins at the earliest; gap; duration; number of the stop that
        it waits for; time from the end of that.
        """
        order = self.order
        if not len(order.stops):
            return []
        before = self.ended[order.places] - self.busy[order.places]
        between = np.empty(len(order.stops))
        between[order.by_stream] = before - np.append(0.0, self.ended[order.places[:-1]])
        sums = []
        for rows, if_gone in ((self.offset, NEVER), (bounds[1] if bounds else None, 0.0)):
            if rows is None and not self.gone.any():
                sums += [np.full(len(order.stops), NEVER)] * 2
                continue
            issued = NEVER if rows is None else rows[order.row]
            begins = issued + self.latency
            begins[self.gone] = if_gone
            left = (begins + self.work)[order.here] - self.ended
            left[order.places] = NEVER
            ends = np.empty(len(order.stops))
            ends[order.by_stream] = np.maximum.reduceat(left, order.behind) + before
            sums += [ends, begins[order.stops]]
        columns = (order.codes[order.stops], between, *sums, self.space[order.stops], self.work[order.stops],
                   order.dep_stops, self.dep_space[order.stops])  # fmt: skip
        return list(zip(*(one.tolist() for one in columns), strict=True))

    def _fill_in(self, issued: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return begin and end of all operations; issued: when rows launch; ends: ends of the stops."""
        order = self.order
        earliest = issued[order.row] + self.latency
        earliest[self.gone] = 0.0
        dep_ends = ends[order.dep_of] + self.dep_space[order.depends]
        earliest[order.depends] = np.maximum(earliest[order.depends], dep_ends)
        left = (earliest + self.work)[order.here] - self.ended
        done = np.full(len(left), NEVER)
        for low, high in pairwise(order.edges.tolist()):
            done[low + 1 : high] = np.maximum.accumulate(left[low : high - 1]) + self.ended[low : high - 1]
        begins = np.empty(len(left))
        begins[order.here] = np.maximum(earliest[order.here], done + self.space[order.here])
        return begins, begins + self.work


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
    kinds = program.host["kind"].to_numpy()
    begins = np.flatnonzero(kinds == BEGIN)
    launched = program.gpu["host"].to_numpy()
    done = np.concatenate(([-np.inf], np.maximum.accumulate(ran.gpu_ends)))
    edges = np.maximum(ran.host_starts[begins], done[np.searchsorted(launched, begins)])
    if len(begins) == 1:
        edges[0] = ran.host_starts[begins[0]]
    last = max(ran.host_starts[kinds == END][-1], done[-1])
    return np.diff(np.append(edges, last))[min(1, len(begins) - 1) :]


def simulation_error(program: Program) -> tuple[float, float]:
    """Return the simulation's error: relative error of the step, and median error in ns of the operations' starts."""
    true, again = measured_times(program), simulate(program)
    step, replayed = step_times(program, true).sum(), step_times(program, again).sum()
    return float(replayed / step - 1), float(np.median(np.abs(again.gpu_starts - true.gpu_starts)))
