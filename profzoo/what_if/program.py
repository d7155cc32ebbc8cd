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

# Kinds of host rows: a call, the begin of a step, the end of a step.
CALL, BEGIN, END = range(3)
GRAPHS = ("cudaGraphLaunch", "cuGraphLaunch")
# These calls wait until the memory is no longer used, like calls that synchronise.
FREEING = ("cudaFree_v", "cuMemFree_v")
ALLOCATING = ("cudaMalloc", "cuMemAlloc", "cudaHostAlloc", "cudaFree", "cuMemFree")
# These calls load code for the GPU: kernels that were not used before, or that were compiled just now.
LOADING = ("cuLibraryLoad", "cudaLibraryLoad", "cuModuleLoad")


@dataclass(frozen=True)
class Program:
    """The steps of one process as a program for a CPU and a GPU; times in ns.

    host: one row per call, and one for the begin and the end of each step, in the order of their starts. Threads are
    merged, because PyTorch's main thread waits while autograd's thread runs. Columns:
        `start`, `end`: as measured.
        `gap`: the CPU's own time before the call since the previous row's end, or since its start if they overlap.
        `overlaps`: the call began before the previous row had ended.
        `input`, `library`: part of `gap` in the ranges `data` and `transfer`; part of `gap` in cuDNN or cuBLAS.
        `locked`: part of `gap` in which the thread that makes the call waits for the interpreter's lock.
        `own`: the call's own time, without waiting.
        `wait`, `target`, `tail`: what the call waits for (a constant of blocking_calls.py); the number of that stream
            or operation; the time from that end to the call's end.
        `part`: 1 + the index in PARTS, or 0 for none.
        `launches`: whether the call gives the GPU work. `loads`: whether it loads code for the GPU.

    gpu: one row per operation, in the order of their calls. Columns:
        `start`, `end`: as measured.
        `host`: row of the launching call.
        `stream`, `ns`: number of the stream; duration.
        `latency`: least time from the call's start, or from when the call found room, to the operation's start.
        `gap`: least time from the end of the previous operation on the stream.
        `dep`, `dep_gap`: an earlier operation that this one also waits for, -1 for none; time from its end.
        `room`: number of launches that the stream's queue holds.
        `pageable`: it copies from pageable memory of the host to the device.
        `gone`: a change removed the operation.

    kernels: mangled names by their numbers in PACKS.
    after: median time from the end of a launching call to the start on the GPU.
    apart: half width of the 90 % interval of the logarithm of another process's step; 0 if unknown.
    waiting: part of the communication in which the process waits for others, 0 to 1; None if unknown.
    """

    process: int
    host: pd.DataFrame
    gpu: pd.DataFrame
    after: float
    kernels: Mapping[int, str]
    apart: float = 0.0
    waiting: float | None = None

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return int((self.host["kind"] == BEGIN).sum())


def build_program(events: Events) -> Program | None:
    """Return the program of a process; None if none of its calls gave the GPU work."""
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
    # At one moment a step may end, the next begin, and a call start, in this order.
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
                                 ("graphs", GRAPHS), ("allocates", ALLOCATING), ("loads", LOADING))
    }  # fmt: skip
    return host.assign(
        **kinds,
        overlaps=overlaps,
        gap=np.where(overlaps, starts - before, starts - free),
        input=intervals.covered_ns(inputs, free, starts),
        library=intervals.covered_ns(events.library, free, starts),
        locked=_locked_ns(host, events.locks, free),
        own=ends - starts,
        part=nsys_launches.find_ranges(launched, events.parts),
        step=np.cumsum(host["kind"] == BEGIN) - 1,
        launches=np.bincount(gpu["host"], minlength=len(host)) > 0,
    )


def _locked_ns(host: pd.DataFrame, locks: pd.DataFrame, free: np.ndarray) -> np.ndarray:
    """Return for each host row how many ns of its gap the thread of the next call waits for the interpreter's lock.

    locks: waits of all threads; free: end of the row before, in ns.
    """
    starts, found = host["start"].to_numpy(), np.zeros(len(host), dtype=np.int64)
    threads = host["thread"].where(host["thread"] >= 0).bfill().ffill()
    for thread, own in locks.groupby("thread"):
        mine = (threads == thread).to_numpy()
        waits = own[["start", "end"]].to_numpy(dtype=np.int64)
        found[mine] = intervals.covered_ns(waits, free[mine], starts[mine])
    return found


def _in_one_stream(gpu: pd.DataFrame, host: pd.DataFrame) -> pd.DataFrame:
    """Put all nodes of a graph on the stream of its first node, so that later operations wait for the whole graph."""
    of_graph = host["graphs"].to_numpy()[gpu["host"]]
    first = gpu.groupby("host")["stream"].transform("first")
    return gpu.assign(stream=np.where(of_graph, first, gpu["stream"]), node=of_graph)


def choose_operations(program: Program, packs: pd.DataFrame, part: str | None = None) -> np.ndarray:
    """Return one flag per operation: it is a kernel of one of these configurations.

    Args:
        packs: frame with the columns PACKS, one row per configuration.
        part: name of the part of the step in which the kernel was launched; empty for outside all parts, None for any.
    """
    wanted = pd.MultiIndex.from_frame(packs[PACKS])
    found = pd.MultiIndex.from_frame(program.gpu[PACKS]).isin(wanted) & (program.gpu["kind"] == 0).to_numpy()
    if part is None:
        return found
    parts = program.host["part"].to_numpy()[program.gpu["host"]]
    return found & (parts == (PARTS.index(part) + 1 if part else 0))


def replace_tables(program: Program, host: dict | None = None, gpu: dict | None = None) -> Program:
    """Return the program with some columns of its tables replaced; host, gpu: new values by column."""
    return replace(program, host=program.host.assign(**host or {}), gpu=program.gpu.assign(**gpu or {}))
