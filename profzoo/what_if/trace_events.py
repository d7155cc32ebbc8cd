"""Reads an nsys export (SQLite) into the events of each process: calls, GPU operations, CUDA events and waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools import stream_overlap
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import PAGEABLE, UNKNOWN
from profzoo.tools.nsys.events.trace import (
    CALL_TABLE,
    PACKS,
    PROCESS,
    Trace,
    open_trace,
    read_ranges,
    read_window_steps,
)

KERNEL, COPY, SET, GRAPH = range(4)
KINDS = {stream_overlap.KERNEL: KERNEL, stream_overlap.COPY: COPY, stream_overlap.MEMSET: SET}
# CUPTI's kinds of copies to the device.
INWARD = (1, 3)
# CUPTI's numbers for kinds of synchronisation; NONE is the number that means no stream, event or record.
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = 1, 2, 3, 4
NONE = 4294967295
LIBRARIES = ("CUDNN_EVENTS", "CUBLAS_EVENTS")
# A thread that needs the interpreter's lock while another one holds it waits in this call, at most 5 ms at a time, and
# then asks for the lock (CPython, take_gil in Python/ceval_gil.c). Python's own locks and queues wait in other calls.
LOCK_WAIT, SYSTEM_CALLS = "pthread_cond_timedwait", "OSRT_API"
SYNCHRONISATIONS, RECORDS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"


@dataclass(frozen=True)
class Events:
    """The traced events of one process that ran steps; times in ns.

    Attributes:
        process: nsys's global process ID.
        steps: `start` and `end`, one row per step, in order.
        parts: `name`, `start` and `end` of the step's parts on the CPU, one row per range.
        calls: `start`, `end`, `correlation`, `thread` and `name`, one row per CUDA call of any thread, by start.
        operations: one row per GPU operation: `start`, `end`, `correlation`, `stream`, `kind`; `talking`, whether it
            communicates; `crossing`, whether it copies between host and device; `inward`, whether it copies to the
            device; `pageable`, whether it reads pageable memory of the host; PACKS, a kernel's launch configuration.
        waits: one row per synchronisation: `correlation`, `kind`, `stream`, `event` and `record`.
        records: one row per recording of an event: `correlation`, `stream`, `event` and `record`. A record is the
            number by which a wait refers to a recording; 0 if the trace does not say.
        library: start and end of intervals in which the CPU was in cuDNN or cuBLAS, shape (intervals, 2).
        kernels: mangled names of kernels by their numbers in PACKS.
        locks: `start`, `end` and `thread`, one row per wait of a thread for the interpreter's lock.
    """

    process: int
    steps: pd.DataFrame
    parts: pd.DataFrame
    calls: pd.DataFrame
    operations: pd.DataFrame
    waits: pd.DataFrame
    records: pd.DataFrame
    library: np.ndarray
    kernels: Mapping[int, str]
    locks: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["start", "end", "thread"]))


def read(path: str | Path, whole_run: bool = False) -> list[Events]:
    """Return the events of each process that ran steps; none if the trace has no CUDA calls, for example on a CPU.

    Args:
        path: nsys export (SQLite).
        whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(path) as trace:
        steps = read_window_steps(trace, whole_run)
        if CALL_TABLE not in trace.tables or steps.empty:
            return []
        parts = read_ranges(trace, PARTS)
        calls, operations = _calls(trace), _operations(trace)
        waits = trace.read_numbers(SYNCHRONISATIONS, {**_EVENT, "kind": "syncType"})
        records = trace.read_numbers(RECORDS, _EVENT)
        library, locks = _library(trace), _lock_waits(trace)
        kernels = {number: known[0] for number, known in trace.kernel_names.items()}
    return [
        Events(
            process=int(process),
            steps=own.sort_values("start", ignore_index=True),
            parts=_of(parts, process),
            calls=_of(calls, process),
            operations=_of(operations, process),
            waits=_of(waits, process),
            records=_of(records, process),
            library=intervals.union(_of(library, process)[["start", "end"]].to_numpy(dtype=np.int64)),
            kernels=kernels,
            locks=_of(locks, process),
        )
        for process, own in steps.groupby("process")
    ]


def _of(table: pd.DataFrame, process: object) -> pd.DataFrame:
    return table[table["process"] == process].reset_index(drop=True)


_EVENT = {"correlation": "correlationId", "stream": "streamId", "event": "eventId", "record": "eventSyncId",
          "process": "globalPid"}  # fmt: skip
_SPAN = {"start": "start", "end": "end", "thread": "globalTid"}


def _calls(trace: Trace) -> pd.DataFrame:
    order = {"start": True, "end": False, "correlation": True}
    found = trace.calls.sort_values([*order], ascending=[*order.values()], ignore_index=True)
    names = pd.Categorical(found["name"].map(trace.texts).fillna(""))
    return found[["start", "end", "correlation", "thread", "process"]].assign(name=names)


def _operations(trace: Trace) -> pd.DataFrame:
    trace.check_streams()
    found = trace.operations
    flags = {
        "inward": found["copy_kind"].isin(INWARD),
        "pageable": (found["source"] == PAGEABLE) & found["crossing"],
    }
    packs = trace.launches[PACKS].reindex(found.index, fill_value=0)
    whole = found["graph"] >= 0
    # Of a whole graph it is not known on which streams its kernels ran.
    kinds, streams = found["kind"].map(KINDS).mask(whole, GRAPH), found["stream"].mask(whole, UNKNOWN)
    columns = ["start", "end", "correlation", "process", "stream", "kind", "talking", "crossing", *flags, *PACKS]
    return found.assign(kind=kinds, stream=streams, **flags, **packs)[columns]


def _lock_waits(trace: Trace) -> pd.DataFrame:
    """Read the waits for the interpreter's lock of all threads; none where the trace lacks the system's calls."""
    found = trace.read_numbers(SYSTEM_CALLS, {**_SPAN, "name": "nameId"})
    waits = [number for number, text in trace.texts.items() if text.startswith(LOCK_WAIT)]
    return found[found["name"].isin(waits)].assign(process=found["thread"] & PROCESS)


def _library(trace: Trace) -> pd.DataFrame:
    found = pd.concat([trace.read_numbers(table, _SPAN) for table in LIBRARIES], ignore_index=True)
    return found.assign(process=found["thread"] & PROCESS)
