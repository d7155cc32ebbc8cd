"""Makes a program that can be simulated from the events of a traced process."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.range_names import PARTS
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.tools.nsys.events.trace import COPYING, LAUNCHING, WAITING
from profzoo.tools.nsys.steps.steps import INPUT
from profzoo.what_if import dependencies
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
        `data`: part of `gap` in the range `data`, in which a batch is loaded.
        `locked`: part of `gap` in which the thread that makes the call waits for the interpreter's lock.
        `own`: the call's own time, without waiting.
        `wait`, `target`, `tail`: what the call waits for (a constant of blocking_calls.py); the number of that stream
            or operation; the time from that end to the call's end.
        `part`: 1 + the index in PARTS, or 0 for none.
        `launches`: whether the call gives the GPU work. `loads`: whether it loads code for the GPU.
        `tries`: whether it is a tuner's (changes.mark_tuning).

    gpu: one row per operation, in the order of their calls. Columns:
        `start`, `end`: as measured.
        `host`: row of the launching call.
        `stream`, `ns`: number of the stream; duration.
        `latency`: least time from the call's start, or from when the call found room, to the operation's start.
        `gap`: least time from the end of the previous operation on the stream.
        `dep`, `dep_gap`: an earlier operation that this one also waits for, -1 for none; time from its end.
        `room`: number of launches that the stream's queue holds.
        `pageable`: it copies from pageable memory of the host to the device.
        `tried`: a tuner launched it to time it.
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
    host, gpu = dependencies.add_waits(host, gpu, events)
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
    of_input, of_data = (
        events.parts[events.parts["name"].isin(names)][["start", "end"]].to_numpy(dtype=np.int64)
        for names in (INPUT, INPUT[:1])
    )
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
        input=intervals.covered_ns(of_input, free, starts),
        data=intervals.covered_ns(of_data, free, starts),
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


def read_flags(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column of flags; all are False where an earlier version made the table, which then lacks the column."""
    return table[name].to_numpy(dtype=bool) if name in table else np.zeros(len(table), dtype=bool)


def replace_tables(program: Program, host: dict | None = None, gpu: dict | None = None) -> Program:
    """Return the program with some columns of its tables replaced; host, gpu: new values by column."""
    return replace(program, host=program.host.assign(**host or {}), gpu=program.gpu.assign(**gpu or {}))


# Stores the programs of a cell without tracing overhead, so that changes can be simulated later.

# Number of steps to store; the first of them is not counted. A single delayed step then matters little, and a program
# is still simulated quickly.
KEPT = 10
HOST = ("gap", "input", "library", "own", "overlaps", "wait", "target", "tail", "kind", "part", "step", "launches",
        "allocates")  # fmt: skip
# Of which a file of an earlier version has none.
MEASURED = ("waited", "locked", "loads", "data", "tries")
MEASURED_GPU = ("inward", "pageable", "tried")
ROLES = ("kind", "node", "talking", "crossing", "gone", "host")
GPU = ("stream", "ns", "latency", "gap", "dep", "dep_gap", "room", *ROLES, *PACKS)
FACTS = "facts"


def shorten_program(program: Program) -> Program:
    """Return the first steps of a program, at most KEPT."""
    ends = np.flatnonzero(program.host["kind"] == END)
    rows = int(ends[min(KEPT, len(ends)) - 1]) + 1
    gpu = program.gpu[program.gpu["host"] < rows]
    # Operations of the removed steps can no longer be waited for.
    dep = np.where(gpu["dep"] < len(gpu), gpu["dep"], -1)
    return replace(program, host=program.host.iloc[:rows], gpu=gpu.assign(dep=dep))


def write_programs(programs: Sequence[Program], path: str | Path) -> None:
    """Write the first steps of each program to a compressed NumPy archive, with the columns that a simulation needs."""
    arrays: dict[str, np.ndarray] = {}
    facts = []
    for place, one in enumerate(map(shorten_program, programs)):
        arrays |= {f"{place}.host.{name}": one.host[name].to_numpy() for name in (*HOST, *MEASURED) if name in one.host}
        arrays |= {f"{place}.gpu.{name}": one.gpu[name].to_numpy() for name in (*GPU, *MEASURED_GPU) if name in one.gpu}
        kernels = {str(number): name for number, name in one.kernels.items()}
        known = {"process": one.process, "after": one.after, "apart": one.apart, "waiting": one.waiting}
        facts.append({**known, "kernels": kernels})
    # An open file, because numpy appends an ending to a name.
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **(arrays | {FACTS: np.array(json.dumps(facts))}))


def read_programs(path: str | Path) -> dict[int, Program]:
    """Read the programs of a file, by process ID as in the tables of changes.

    Raises:
        DataError: the file holds no programs, or is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            facts = json.loads(str(archive[FACTS]))
            return {process_number(known["process"]): _one(archive, place, known) for place, known in enumerate(facts)}
    except Exception as error:
        # numpy raises many kinds of errors for damaged archives and arrays.
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: no programs of steps ({why}): delete it, and the next run makes it again") from None


def process_number(process: int) -> int:
    """Return the process ID from nsys's global process ID.

    >>> process_number(1082 << 24)
    1082
    """
    return process >> 24 & 0xFFFFFF


def _one(archive: Mapping[str, np.ndarray], place: int, facts: Mapping) -> Program:
    host = _columns(archive, f"{place}.host", HOST, MEASURED)
    gpu = _columns(archive, f"{place}.gpu", GPU, MEASURED_GPU)
    kernels = {int(number): name for number, name in facts["kernels"].items()}
    return Program(facts["process"], host, gpu, facts["after"], kernels, facts["apart"], facts.get("waiting"))


def _columns(archive: Mapping[str, np.ndarray], of: str, names: Sequence[str], more: Sequence[str]) -> pd.DataFrame:
    """Read a table's columns; more: those that the file may lack."""
    there = [*names, *(name for name in more if f"{of}.{name}" in archive)]
    return pd.DataFrame({name: archive[f"{of}.{name}"] for name in there})
