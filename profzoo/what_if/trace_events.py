"""Reads an nsys export (SQLite) into the events of each process: calls, GPU operations, CUDA events and waits."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.communication_kernels import communicates
from profzoo.tools.nsys import export_columns as nsys_columns
from profzoo.tools.nsys import intervals
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys.launches import PACKS
from profzoo.tools.nsys.timeline import CROSSING, INWARD
from profzoo.tools.nsys.trace import CALL_TABLE, PROCESS, open_export, read_integers, read_ranges, read_window_steps

KERNEL, COPY, SET, GRAPH = range(4)
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
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        steps = read_window_steps(database, tables, whole_run)
        if CALL_TABLE not in tables or steps.empty:
            return []
        parts = read_ranges(database, tables, PARTS)
        names = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
        calls = _calls(database, names)
        operations = _operations(database, tables, names)
        waits = _rows(database, tables, SYNCHRONISATIONS, ["correlationId", "syncType", "streamId", *_EVENT])
        records = _rows(database, tables, RECORDS, ["correlationId", "streamId", *_EVENT])
        library = _library(database, tables)
        locks = _lock_waits(database, tables, names)
        kernels = {number: known[0] for number, known in nsys_launches.kernel_names(database, tables).items()}
    waits = waits.rename(columns={"syncType": "kind"} | _NAMES)
    records = records.rename(columns=_NAMES)
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


_EVENT = ["eventId", "eventSyncId", "globalPid"]
_NAMES = {"correlationId": "correlation", "streamId": "stream", "eventId": "event", "eventSyncId": "record",
          "globalPid": "process"}  # fmt: skip


def _calls(database: sqlite3.Connection, names: dict[int, str]) -> pd.DataFrame:
    columns = ["start", "end", "correlation", "thread", "name"]
    read = nsys_columns.sql_for_numbers(database, CALL_TABLE, ["start", "end", "correlationId", "globalTid", "nameId"])
    query = f"SELECT {', '.join(read.values())} FROM {CALL_TABLE} ORDER BY start, end DESC, correlationId"
    frame = pd.DataFrame(read_integers(database.execute(query)).reshape(-1, 5), columns=columns)
    frame["process"] = frame["thread"] & PROCESS
    return frame.assign(name=pd.Categorical(frame["name"].map(names).fillna("")))


def _operations(database: sqlite3.Connection, tables: set[str], names: dict[int, str]) -> pd.DataFrame:
    launched = nsys_launches.read_launches(database, tables, placed=True)
    mangled = launched[PACKS].assign(kernel=nsys_launches.unpack_configurations(launched)["mangled"])["kernel"]
    shown = nsys_launches.kernel_names(database, tables)
    talking = [number for number, known in shown.items() if communicates(known[1])]
    kernels = launched.assign(
        end=launched["start"] + launched["ns"],
        kind=np.where(launched["graph"] >= 0, GRAPH, KERNEL),
        talking=mangled.isin(talking) & (launched["graph"] < 0),
        crossing=False,
        inward=False,
        pageable=False,
    )
    frames = [kernels]
    for kind, table in ((COPY, "CUPTI_ACTIVITY_KIND_MEMCPY"), (SET, "CUPTI_ACTIVITY_KIND_MEMSET")):
        more = ["copyKind", "srcKind"] if kind == COPY else []
        columns = ["start", "end", "correlationId", "streamId", "globalPid", *more]
        rows = _rows(database, tables, table, columns)
        crossing, inward = (rows["copyKind"].isin(kinds) if kind == COPY else False for kinds in (CROSSING, INWARD))
        pageable = (rows["srcKind"] == nsys_columns.PAGEABLE) & crossing if kind == COPY else False
        same = {"kind": kind, "talking": False, "crossing": crossing, "inward": inward, "pageable": pageable}
        frames.append(rows.rename(columns=_NAMES).assign(**same, **dict.fromkeys(PACKS, 0)))
    flags = ("talking", "crossing", "inward", "pageable")
    columns = ["start", "end", "correlation", "process", "stream", "kind", *flags, *PACKS]
    return pd.concat([frame[columns] for frame in frames], ignore_index=True)


def _lock_waits(database: sqlite3.Connection, tables: set[str], names: Mapping[int, str]) -> pd.DataFrame:
    """Read the waits for the interpreter's lock of all threads; none where the trace lacks the system's calls."""
    found = _rows(database, tables, SYSTEM_CALLS, ["start", "end", "globalTid", "nameId"])
    found = found[found["nameId"].isin([number for number, name in names.items() if name.startswith(LOCK_WAIT)])]
    return found.rename(columns={"globalTid": "thread"}).assign(process=found["globalTid"] & PROCESS)


def _library(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    frames = [_rows(database, tables, table, ["start", "end", "globalTid"]) for table in LIBRARIES]
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(process=frame["globalTid"] & PROCESS)


def _rows(database: sqlite3.Connection, tables: set[str], table: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read integer columns of a table by name, one row per entry; an empty frame if the export lacks the table."""
    rows: Sequence[tuple] | sqlite3.Cursor = ()
    if table in tables:
        taken = nsys_columns.sql_for_numbers(database, table, columns)
        rows = database.execute(f"SELECT {', '.join(taken.values())} FROM {table}")
    return pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=list(columns))
