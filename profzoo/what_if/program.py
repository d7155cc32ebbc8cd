"""Makes a program that can be simulated from the events of a traced process."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.nsys import intervals
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys.launches import PACKS
from profzoo.tools.nsys.steps import INPUT
from profzoo.tools.nsys.timeline import COPYING, LAUNCHING, WAITING
from profzoo.what_if import blocking_calls, dependencies
from profzoo.what_if.trace_events import Events

# Rows of the host that are no calls: where steps begin and end.
CALL, BEGIN, END = range(3)
GRAPHS = ("cudaGraphLaunch", "cuGraphLaunch")
# Waits until the memory is no longer used, as their synchronising sisters do.
FREEING = ("cudaFree_v", "cuMemFree_v")
ALLOCATING = ("cudaMalloc", "cuMemAlloc", "cudaHostAlloc", "cudaFree", "cuMemFree")


@dataclass(frozen=True)
class Program:
    """The steps of one process as a program for a CPU and a GPU; times in ns.

    host: one row per call, and one where each step begins and ends, in order of their starts, whatever the thread,
    because PyTorch's main thread waits while autograd's thread runs. `gap` is the CPU's own time before the call, since
    the row before it ended or, where the call `overlaps` that row, began. `input` is the part of the gap in the ranges
    data and transfer, and `library` the part in cuDNN or cuBLAS. `own` is the call's own time. `wait` says what the
    call waits for (a name of blocking_calls.py) with `target`, a stream or an operation, after whose end it takes
    `tail`. `part` is 1 + the index in PARTS, and 0 for none. `launches` says whether the call gives the GPU work.

    gpu: a row an operation, in the order of their calls: `host`, the row of its call; `stream`; `ns`, how long it
    takes; `latency`, from its call's start (or from when it found room) until it may begin; `gap` from the end of
    what is before it on its stream; `dep`, an earlier operation that it waits for as well, -1 for none, and `dep_gap`
    from that one's end; `room`, how many launches its stream's queue takes. `gone`: it is no longer there.

    Of both `start` and `end` are those measured. kernels: mangled names by their numbers in PACKS. after: from the end
    of a launch until the GPU begins, the median. apart: by how much the step may be another one in other processes
    (half of the interval of nine in ten of its logarithm), 0 where that is not known.
    """

    process: int
    host: pd.DataFrame
    gpu: pd.DataFrame
    after: float
    kernels: Mapping[int, str]
    apart: float = 0.0

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return int((self.host["kind"] == BEGIN).sum())


def build_program(events: Events) -> Program | None:
    """Return the program of a process; None where none of its calls gave the GPU work."""
    calls, owner = _outermost(events)
    operations = _launched(events.operations, calls, owner)
    if operations.empty:
        return None
    threads = calls.loc[operations["host"].unique(), "thread"].unique()
    host = _ordered(calls[calls["thread"].isin(threads)], events.steps)
    rows = host.loc[host["kind"] == CALL, "row"]
    operations["host"] = operations["host"].map(pd.Series(rows.index, index=rows))
    gpu = operations.sort_values(["host", "start", "end"], kind="stable", ignore_index=True)
    host = _described(host, gpu, events)
    gpu = _in_one_stream(gpu, host)
    host, gpu = blocking_calls.add_waits(host, gpu, events)
    gpu, after = dependencies.add_dependencies(host, gpu, events)
    gpu = gpu.assign(ns=gpu["end"] - gpu["start"], gone=False)
    return Program(events.process, host, gpu, after, events.kernels)


def _outermost(events: Events) -> tuple[pd.DataFrame, pd.Series]:
    """Return calls of the steps that no other call of their thread contains, and their rows by correlation."""
    begin, end = int(events.steps["start"].iloc[0]), int(events.steps["end"].iloc[-1])
    calls = events.calls[events.calls["start"].between(begin, end)]
    calls = calls.sort_values(["start", "end"], ascending=[True, False], kind="stable", ignore_index=True)
    reached = calls.groupby("thread")["end"].transform(lambda ends: ends.cummax().shift(fill_value=-1))
    inner = (calls["end"] <= reached).to_numpy()
    rows = pd.Series(np.where(inner, np.nan, np.arange(len(calls))))
    outer = rows.groupby(calls["thread"]).ffill().astype(np.int64)
    owner = pd.Series(outer.to_numpy(), index=calls["correlation"])
    return calls[~inner], owner[~owner.index.duplicated()]


def _launched(operations: pd.DataFrame, calls: pd.DataFrame, owner: pd.Series) -> pd.DataFrame:
    """Return the operations that calls of the steps launched, with the call's row as `host`."""
    host = operations["correlation"].map(owner)
    known = host.isin(calls.index)
    return operations[known].assign(host=host[known].astype(np.int64))


def _ordered(calls: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return calls and the edges of steps by start; `row` is the call's, -1 for others."""
    nothing = {"correlation": -1, "thread": -1, "row": -1}
    marks = [
        pd.DataFrame({"start": steps[column], "end": steps[column], "kind": kind}).assign(**nothing)
        for column, kind in (("start", BEGIN), ("end", END))
    ]
    frame = pd.concat([calls.assign(kind=CALL, row=calls.index, name=calls["name"].astype(object)), *marks])
    # Where a step ends another may begin, and a call be made.
    rank = frame["kind"].map({END: 0, BEGIN: 1, CALL: 2})
    frame = frame.assign(rank=rank, name=frame["name"].fillna(""))
    return frame.sort_values(["start", "rank"], kind="stable", ignore_index=True).drop(columns="rank")


def _described(host: pd.DataFrame, gpu: pd.DataFrame, events: Events) -> pd.DataFrame:
    """Add gaps, kinds of calls, step and part of the step."""
    starts, ends = host["start"].to_numpy(), host["end"].to_numpy()
    free = np.concatenate(([starts[0]], np.maximum.accumulate(ends)[:-1]))
    overlaps = starts < free
    before = np.concatenate(([starts[0]], starts[:-1]))
    inputs = events.parts[events.parts["name"].isin(INPUT)][["start", "end"]].to_numpy(dtype=np.int64)
    launched = host.assign(launched=starts, process=events.process)
    names = host["name"].astype("category")
    kinds = {
        kind: names.map({name: name.startswith(beginnings) for name in names.cat.categories}).astype(bool)
        for kind, beginnings in (("launching", LAUNCHING), ("copies", COPYING), ("syncs", WAITING + FREEING),
                                 ("graphs", GRAPHS), ("allocates", ALLOCATING))
    }  # fmt: skip
    return host.assign(
        **kinds,
        overlaps=overlaps,
        gap=np.where(overlaps, starts - before, starts - free),
        input=covered_ns(inputs, free, starts),
        library=covered_ns(events.library, free, starts),
        own=ends - starts,
        part=nsys_launches.find_ranges(launched, events.parts),
        step=np.cumsum(host["kind"] == BEGIN) - 1,
        launches=np.bincount(gpu["host"], minlength=len(host)) > 0,
    )


def covered_ns(spans: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the ns of each interval that spans cover; the spans may overlap and have any order.

    >>> covered_ns(np.array([[10, 20], [15, 30]]), np.array([0, 25]), np.array([12, 100]))
    array([2, 5])
    """
    merged = intervals.union(spans)
    if not len(merged):
        return np.zeros(len(starts), dtype=np.int64)
    edges = merged.ravel()
    sums = np.concatenate(([0], np.cumsum(np.where(np.arange(len(edges) - 1) % 2 == 0, np.diff(edges), 0))))
    upto = [np.interp(times, edges, sums) for times in (starts, ends)]
    return np.maximum(upto[1] - upto[0], 0).round().astype(np.int64)


def _in_one_stream(gpu: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    """Put what a graph launches on one stream, that of its first node: what follows waits for all of it."""
    of_graph = host["graphs"].to_numpy()[gpu["host"]]
    first = gpu.groupby("host")["stream"].transform("first")
    return gpu.assign(stream=np.where(of_graph, first, gpu["stream"]), node=of_graph)


def choose_operations(program: Program, packs: pd.DataFrame, part: str | None = None) -> np.ndarray:
    """Return which operations are kernels of these configurations (PACKS), launched in one part if given."""
    wanted = pd.MultiIndex.from_frame(packs[PACKS])
    found = pd.MultiIndex.from_frame(program.gpu[PACKS]).isin(wanted) & (program.gpu["kind"] == 0).to_numpy()
    if part is None:
        return found
    parts = program.host["part"].to_numpy()[program.gpu["host"]]
    return found & (parts == (PARTS.index(part) + 1 if part else 0))


def replace_tables(program: Program, host: dict | None = None, gpu: dict | None = None) -> Program:
    """Return the program with other tables."""
    return replace(program, host=program.host.assign(**host or {}), gpu=program.gpu.assign(**gpu or {}))
