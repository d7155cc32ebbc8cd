"""Simulates an asynchronous device and the CPU that feeds it, event by event, and records it like an export of nsys.

The effect of a change is known here: the change is made to the CPU's program, and the simulation runs again. No code is
shared with profzoo.what_if, which gets only the recording.
"""

import gzip
import heapq
import itertools
import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from profzoo.range_names import make_nvtx_name

PROCESS = 7 << 24
MAIN, AUTOGRAD, PINNING = PROCESS + 1, PROCESS + 2, PROCESS + 3
NAMES = {"kernel": "cudaLaunchKernel_v7000", "copy": "cudaMemcpyAsync_v3020", "pageable": "cudaMemcpyAsync_v3020",
         "staged": "cudaMemcpyAsync_v3020", "fed": "cudaMemcpyAsync_v3020",
         "sync": "cudaDeviceSynchronize_v3020", "stream_sync": "cudaStreamSynchronize_v3020",
         "other": "cuKernelGetName", "record": "cudaEventRecord_v3020", "wait": "cudaStreamWaitEvent_v3020",
         "graph": "cudaGraphLaunch_v10000", "query": "cudaEventQuery_v3020", "free": "cudaFree_v3020",
         "allocate": "cudaMalloc_v3020", "load": "cuLibraryLoadData"}  # fmt: skip
# Share of its time in which an operation fills a crowded device.
FULL = 0.85
# A graph on this device: time of its launch, additional time per node, and time between two nodes. The values are those
# that NVIDIA has published ("Constant Time Launch for Straight-Line CUDA Graphs", 2024; "Getting Started with CUDA
# Graphs", 2019).
GRAPH_LAUNCH_NS, GRAPH_LAUNCH_NODE_NS, BETWEEN_NODES_NS = 2_500.0, 1.0, 1_000.0
LAUNCHES = ("kernel", "copy", "pageable", "staged", "fed", "graph")


@dataclass(frozen=True)
class Act:
    """The next action of the CPU: `before` ns of its own work, then a call of `call` ns.

    A launch makes the GPU work for `ns` on a stream. It starts at the earliest `after` ns after the call's end, `gap`
    ns after the operation before it on the stream, and `lag` ns after the event for which its stream waits. event:
    number of the event that is recorded or waited for. places: places that a launch takes in its stream's queue. nodes: (kind,
    ns, gap) of a graph, one after the other. kind: begin, end, or a key of NAMES. The CPU waits for `pageable` copies.
    `staged` copies go through a buffer when the copy before has left it. `fed` copies do not fit into the buffer and go
    through it in parts, when the device reaches them.
    """

    kind: str
    step: int
    part: str = ""
    before: float = 0
    call: float = 0
    stream: int = 7
    ns: float = 0
    after: float = 1800
    gap: float = 1100
    lag: float = 2000
    group: int = 0
    event: int = -1
    places: int = 1
    thread: int = MAIN
    nodes: tuple[tuple[int, float, float], ...] = ()


@dataclass
class Work:
    """An operation on the device."""

    act: Act
    group: int
    ns: float
    correlation: int
    gap: float
    dep: "Work | None" = None
    lag: float = 0
    arrived: float | None = None
    begun: float | None = None
    done: float | None = None
    asked: bool = False
    node: bool = False


@dataclass
class Recording:
    """A simulated run: calls (act, start, end, correlation), work, and steps (start, end); times in ns."""

    calls: list[tuple[Act, float, float, int]] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    steps: list[list[float]] = field(default_factory=list)

    def step_ns(self) -> float:
        """Return the mean duration of a step in ns, without the first, from its end on CPU and GPU to the last end."""
        begin = self.steps[1][0]
        calls = {number: start for _, start, _, number in self.calls}
        earlier = [work.done for work in self.work if calls[work.correlation] < begin]
        last = max([self.steps[-1][1], *(work.done for work in self.work)])
        return (last - max([begin, *earlier])) / (len(self.steps) - 1)


class Machine:
    """A clock with an agenda, and a device with streams.

    room: places for launches in each stream. crowded: whether each operation fills the device, so that another one can
    begin only near its end, at FULL of its time. back: number of places that become free at once.
    """

    def __init__(self, room: int, crowded: bool = False, back: int = 1):
        self.back, self.left = back, defaultdict[int, int](int)
        self.room, self.crowded, self.now, self.agenda, self.count = room, crowded, 0.0, [], itertools.count()
        self.queues: dict[int, list[Work]] = defaultdict(list)
        self.last: dict[int, Work] = {}
        self.waiting: list[tuple[Callable[[], bool], Generator]] = []
        self.pending: dict[int, int] = defaultdict(int)
        self.told: dict[int, Work | None] = {}
        self.recorded: dict[int, Work | None] = {}
        self.made = Recording()

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (when, next(self.count), what))

    def run(self, acts: Sequence[Act]) -> Recording:
        self.go_on(self.cpu(acts))
        while self.agenda:
            self.now, _, what = heapq.heappop(self.agenda)
            what()
            self.look()
        assert not self.waiting and not any(self.queues.values()), "the program came to no end"
        return self.made

    def look(self) -> None:
        """Begin all operations that can begin, and let the CPU continue if it waited for one of them."""
        for stream, queue in self.queues.items():
            if queue and not queue[0].asked:
                self.start(stream)
        for condition, cpu in list(self.waiting):
            if condition():
                self.waiting.remove((condition, cpu))
                self.go_on(cpu)

    def go_on(self, cpu: Generator) -> None:
        """Run the CPU until its next action takes time or waits."""
        for wanted in cpu:
            if callable(wanted):
                if wanted():
                    continue
                self.waiting.append((wanted, cpu))
            else:
                self.at(self.now + wanted, lambda: self.go_on(cpu))
            return

    def start(self, stream: int) -> None:
        """Schedule the first operation in a stream's queue; called again until its start is known."""
        work, before = self.queues[stream][0], self.last.get(stream)
        if work.arrived is None or (before and before.done is None) or (work.dep and not work.dep.done):
            return
        moments = [work.arrived, self.now]
        moments += [before.done + work.gap] if before else []
        moments += [work.dep.done + work.lag] if work.dep else []
        work.asked = True
        self.at(max(moments), lambda: self.begin(work, stream))

    def begin(self, work: Work, stream: int) -> None:
        # Communication uses only a part of the device, and side streams also have other kinds of kernels.
        others = [one for name, one in self.last.items() if name != stream and one.done is None and one.group >= 0]
        full = max([one.begun + FULL * one.ns for one in others], default=0) if self.crowded and work.group >= 0 else 0
        if full > self.now:
            self.at(full, lambda: self.begin(work, stream))
            return
        self.queues[stream].pop(0)
        self.last[stream], work.begun = work, self.now
        self.left[stream] += 0 if work.node else work.act.places
        if self.left[stream] >= self.back or not self.queues[stream]:
            self.pending[stream] -= self.left.pop(stream)

        def over() -> None:
            work.done = self.now

        self.at(self.now + work.ns, over)

    def cpu(self, acts: Sequence[Act]) -> Generator:
        for number, act in enumerate(acts, 1):
            yield act.before
            if act.kind == "begin":
                self.made.steps.append([self.now, self.now])
            elif act.kind == "end":
                self.made.steps[-1][1] = self.now
            else:
                began = self.now
                yield from self.call(act, number)
                self.made.calls.append((act, began, self.now, number))

    def call(self, act: Act, number: int) -> Generator:
        if act.kind in LAUNCHES:
            yield lambda: self.pending[act.stream] + act.places <= self.room
        if act.kind == "fed":
            mine = [work for work in reversed(self.made.work) if work.act.stream == act.stream]
            yield lambda: all(work.done is not None for work in mine)
        if act.kind == "staged":
            staged = [work for work in reversed(self.made.work) if work.act.kind == "staged"]
            yield lambda: all(work.done is not None for work in staged)
        if act.kind == "fed":
            self.launch(act, number)
        yield act.call
        if act.kind in LAUNCHES and act.kind != "fed":
            work = self.launch(act, number)
            if act.kind == "pageable":
                yield lambda: work.done is not None
                yield 1500
        elif act.kind in ("sync", "free"):
            everything = self.made.work[::-1]
            yield lambda: all(work.done is not None for work in everything)
            yield 2000
        elif act.kind == "stream_sync":
            mine = [work for work in reversed(self.made.work) if work.act.stream == act.stream]
            yield lambda: all(work.done is not None for work in mine)
            yield 2000
        elif act.kind == "record":
            mine = [work for work in self.made.work if work.act.stream == act.stream]
            self.recorded[act.event] = mine[-1] if mine else None
        elif act.kind == "wait":
            self.told[act.stream] = self.recorded.get(act.event)

    def launch(self, act: Act, number: int) -> Work:
        """Put the work of a launch into its stream's queue, and return its last operation."""
        nodes = act.nodes or ((act.group, act.ns, act.gap),)
        for place, (group, ns, gap) in enumerate(nodes):
            work = Work(act, group, ns, number, gap if place else act.gap, node=place > 0)
            if not place:
                work.dep, work.lag = self.told.pop(act.stream, None), act.lag
                self.pending[act.stream] += act.places
            self.made.work.append(work)
            self.queues[act.stream].append(work)

            def arrive(work: Work = work) -> None:
                work.arrived = self.now

            self.at(self.now + act.after, arrive)
        return work


def simulate(acts: Sequence[Act], room: int = 1024, crowded: bool = False, back: int = 1) -> Recording:
    """Return the recording of a CPU's actions; room, crowded, back: as for `Machine`."""
    return Machine(room, crowded, back).run(acts)


def record(made: Recording, path: Path, events: bool = True) -> Path:
    """Write a recording in the form of an nsys export; events: whether it has rows of CUDA events and waits."""
    begun, moment = 1_000_000, round
    calls, ranges, waits, records, copies, kernels = [], [], [], [], [], []
    names = {name: number for number, name in enumerate(dict.fromkeys(NAMES.values()), 100)}
    for act, start, end, number in made.calls:
        at = begun + moment(start), begun + moment(end)
        calls.append((*at, number, act.thread, names[NAMES[act.kind]]))
        if act.kind in ("sync", "stream_sync", "wait"):
            kind = {"sync": 4, "stream_sync": 3, "wait": 2}[act.kind]
            waits.append((*at, number, PROCESS, act.stream, kind, max(act.event, 0), 0))
        elif act.kind == "record":
            records.append((number, PROCESS, act.stream, act.event, 0))
        # A thread that checks whether copies are finished, and launches nothing.
        if number % 7 == 0:
            calls.append((at[0] + 10, at[1] + 500, 10**6 + number, PINNING, names[NAMES["query"]]))
    for (_, part), inside in itertools.groupby(made.calls, key=lambda call: (call[0].step, call[0].part)):
        first, *_, last = [*inside] * 2
        ranges.append((part, first[1] - first[0].before, last[2]))
    for work in made.work:
        row = (begun + moment(work.begun), begun + moment(work.done), work.correlation, PROCESS, work.act.stream)
        if work.act.kind in ("copy", "pageable", "staged", "fed"):
            copies.append((*row, {"copy": 8, "pageable": 2}.get(work.act.kind, 1)))
        else:
            name = 2 if work.group < 0 else 1
            kernels.append((*row, name, name, name, max(work.group, 0) + 1))
    named = [(begun + moment(start), begun + moment(end), MAIN, "step") for start, end in made.steps]
    named += [(begun + moment(start), begun + moment(end), MAIN, part) for part, start, end in ranges]
    with closing(sqlite3.connect(path)) as database:
        _write(
            database, calls, kernels, copies, named, {**{n: s for s, n in names.items()}, 1: "k", 2: "ncclDevKernel"}
        )
        if events:
            _table(database, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                   "start, end, correlationId, globalPid, streamId, syncType, eventId, eventSyncId", waits)  # fmt: skip
            _table(database, "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                   "correlationId, globalPid, streamId, eventId, eventSyncId", records)  # fmt: skip
        database.commit()
    return path


def from_torch(path: Path, to: Path) -> Path:
    """Write one step of a torch.profiler trace (compressed JSON) in the form of an nsys export, without CUDA events."""
    found = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    timed = [event for event in found if "dur" in event and "ts" in event]
    origin = min(event["ts"] for event in timed)
    threads, strings = defaultdict(itertools.count(1).__next__), defaultdict(itertools.count(1).__next__)
    calls, kernels, copies, ranges = [], [], [], []
    for event in timed:
        start, kind, given = event["ts"] - origin, event.get("cat"), event.get("args", {})
        at = (round(start * 1000), round((start + event["dur"]) * 1000))
        if kind in ("cuda_runtime", "cuda_driver"):
            name = strings[f"{event['name']}_v"]
            calls.append((*at, given.get("correlation", 0), PROCESS + threads[event["tid"]], name))
        elif kind == "kernel":
            name = strings[event["name"]]
            kernels.append((*at, given["correlation"], PROCESS, given["stream"], name, name, name, 1))
        elif kind in ("gpu_memcpy", "gpu_memset"):
            copies.append((*at, given["correlation"], PROCESS, given["stream"], 8))
        elif kind == "user_annotation" and event["name"].startswith("profzoo:"):
            ranges.append((*at, MAIN, event["name"].removeprefix("profzoo:")))
    with closing(sqlite3.connect(to)) as database:
        _write(database, calls, kernels, copies, ranges, {number: name for name, number in strings.items()})
        database.commit()
    return to


def _write(database, calls, kernels, copies, ranges, strings) -> None:
    _table(database, "StringIds", "id, value", list(strings.items()))
    _table(database, "CUPTI_ACTIVITY_KIND_RUNTIME", "start, end, correlationId, globalTid, nameId", calls)
    configuration = ["gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
                     "registersPerThread"]  # fmt: skip
    columns = "start, end, correlationId, globalPid, streamId, mangledName, demangledName, shortName, gridX"
    rows = [(*row, *[1] * len(configuration)) for row in kernels]
    _table(database, "CUPTI_ACTIVITY_KIND_KERNEL", f"{columns}, {', '.join(configuration)}", rows)
    _table(database, "CUPTI_ACTIVITY_KIND_MEMCPY", "start, end, correlationId, globalPid, streamId, copyKind", copies)
    events = [(start, end, thread, make_nvtx_name(name), None, 59, 0) for start, end, thread, name in ranges]
    _table(database, "NVTX_EVENTS", "start, end, globalTid, text, textId, eventType, domainId", events)


def _table(database: sqlite3.Connection, name: str, columns: str, rows: Sequence[tuple]) -> None:
    database.execute(f"CREATE TABLE {name} ({columns})")
    database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * (columns.count(',') + 1))})", rows)


def program(seed: int) -> list[Act]:
    """Return a random training, limited by the CPU, the GPU or both in turn, with streams, waits, copies and graphs."""
    draw = random.Random(seed)
    steps, size = draw.randint(3, 5), draw.choice([20, 40, 80, 160])
    python, kernel = draw.choice([2e3, 6e3, 2e4]), draw.choice([2e3, 1e4, 4e4])
    side, synchronises, graphs = draw.random() < 0.4, draw.random() < 0.5, draw.random() < 0.2
    if seed % 20 == 0:
        # Enough work to fill a queue of 1,024 launches.
        steps, size, python, kernel, synchronises = 3, 700, 2e3, 3e4, False
    pattern = []
    for place in range(size):
        part = "forward" if place < size * 0.4 else "backward" if place < size * 0.85 else "optimizer"
        heavy = draw.random() < 0.1
        pattern.append(Act("kernel", 0, part, draw.expovariate(1 / python), draw.uniform(4e3, 9e3),
                           ns=draw.expovariate(1 / kernel) * (8 if heavy else 1) + 1000, group=draw.randint(0, 4),
                           thread=AUTOGRAD if part == "backward" else MAIN))  # fmt: skip
        if seed % 40 == 20:
            # Launches with many arguments take more places: those of optimizers, and some others.
            pattern[-1] = replace(pattern[-1], places=8 if part == "optimizer" else draw.choice([1, 1, 1, 3]))
        if draw.random() < 0.3:
            pattern.append(replace(pattern[-1], kind="other", before=200, call=draw.uniform(200, 900), ns=0))
        if draw.random() < 0.04:
            pattern.append(replace(pattern[-1], kind="copy", before=500, call=8e3, ns=draw.uniform(1e3, 2e4)))
    if graphs:
        nodes = tuple((draw.randint(0, 4), draw.uniform(2e3, 3e4), 900) for _ in range(draw.randint(2, 30)))
        pattern.insert(size // 5, replace(pattern[0], kind="graph", call=9e3, nodes=nodes))
    if side:
        pattern = _beside(pattern, draw)
    if synchronises:
        at = draw.randint(size // 4, len(pattern) - 1)
        pattern.insert(at, replace(pattern[at], kind=draw.choice(["pageable", "sync", "stream_sync"]), before=1e3,
                                   call=4e3, ns=2e3, stream=7, nodes=()))  # fmt: skip
    data = [Act("copy", 0, "transfer", draw.uniform(1e3, min(size, 200) * python), 7e3, ns=draw.uniform(2e3, 2e5))]
    if seed % 10 == 7:
        # Many samples from pageable memory: their call waits until the device reaches them.
        call = draw.uniform(2e4, 2e5)
        data = [replace(data[0], kind="fed", call=call, ns=1.05 * call)]
    if seed % 5 == 0:
        # Samples and labels from pageable memory: the second waits until the first has left the buffer.
        data = [replace(data[0], kind="staged", call=draw.uniform(2e4, 2e5)) for _ in range(2)]
    acts: list[Act] = []
    for step in range(steps):
        acts.append(Act("begin", step, before=2e3))
        copy, *others = [_varied(act, step, draw) for act in data + pattern]
        # The batch is loaded first, and then copied at once.
        acts += [Act("other", step, "data", copy.before, 500), replace(copy, before=1e3), *others]
        acts.append(Act("end", step, before=3e3))
    return acts


def _beside(pattern: list[Act], draw: random.Random) -> list[Act]:
    """Add communication or other work on a separate stream: it waits for earlier work, and later work waits for it."""
    found: list[Act] = []
    events = itertools.count(1)
    every, length = draw.randint(6, 15), draw.uniform(1e4, 2e5)
    # Communication, or kernels of a library that run at the same time.
    group = draw.choice([-1, -1, 0])
    open_event = None
    for place, act in enumerate(pattern):
        found.append(act)
        if place % every == every - 1:
            ready, over = next(events), next(events)
            if open_event is not None:
                found.append(replace(act, kind="wait", before=100, call=800, event=open_event, stream=7))
            found.append(replace(act, kind="record", before=300, call=900, event=ready, stream=7))
            found.append(replace(act, kind="wait", before=100, call=800, event=ready, stream=20))
            found.append(replace(act, kind="kernel", before=2e3, call=6e3, ns=length, group=group, stream=20))
            found.append(replace(act, kind="record", before=100, call=900, event=over, stream=20))
            open_event = over
    if open_event is not None:
        found.append(replace(found[-1], kind="wait", before=100, call=800, event=open_event, stream=7))
        found.append(replace(pattern[-1], kind="kernel", before=2e3, call=6e3, ns=5e3, group=0))
    return found


def _varied(act: Act, step: int, draw: random.Random) -> Act:
    """Return an action with varied times; the CPU's times vary more."""
    slow = draw.lognormvariate(0, 0.1)
    return replace(
        act,
        step=step,
        before=act.before * slow,
        call=act.call * draw.lognormvariate(0, 0.1),
        ns=act.ns * draw.lognormvariate(0, 0.02),
        after=act.after * draw.lognormvariate(0, 0.1),
        gap=act.gap * draw.lognormvariate(0, 0.1),
        lag=act.lag * draw.lognormvariate(0, 0.1),
    )
