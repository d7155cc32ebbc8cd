"""Reads from an nsys export (SQLite) when the GPU was active and when the CPU made CUDA calls."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.tools.communication_kernels import communicates
from profzoo.tools.nsys.export_columns import sql_for_numbers
from profzoo.tools.nsys.trace import CALL_TABLE, PROCESS, read_graphs, read_integers

# Beginnings of the names of CUDA runtime and driver calls; a version may follow (cudaLaunchKernel_v7000).
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch",
             "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset",
             # Of traces that torch.profiler made on GPUs of AMD.
             "hipLaunch", "hipExtLaunch", "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch", "hipMemcpy",
             "hipMemset")  # fmt: skip
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
           "cuCtxSynchronize", "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize",
           "hipEventSynchronize")  # fmt: skip
COPYING = ("cudaMemcpy", "cuMemcpy", "hipMemcpy")
# CUPTI's kinds of copies between host and device: to and from device memory, and arrays.
CROSSING = (1, 2, 3, 4)
# Those of them that copy to the device.
INWARD = (1, 3)
ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def activity(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """Return one row per GPU operation: start and end in ns, correlation ID, process, and flags for its kind.

    `kernel`: it is a kernel. `talking`: it is a kernel that communicates. `crossing`: it copies between host and
    device.
    """
    kinds = {"kernel": "demangledName", "copy": "copyKind", "set": ""}
    frames = []
    talking = _communicating(database, tables)
    for (kind, column), table in zip(kinds.items(), ACTIVITIES, strict=True):
        frame = _numbers(database, tables, table, "globalPid", column)
        number = frame.pop("name")
        frames.append(
            frame.assign(
                kernel=kind == "kernel",
                talking=(kind == "kernel") & number.isin(talking),
                crossing=(kind == "copy") & number.isin(CROSSING),
            )
        )
    whole = read_graphs(database, tables).drop(columns="graph")
    # It is unknown which kernels communicate, or which copies cross, in a graph that was traced as a whole.
    none = np.full(len(whole), False)
    frames.append(whole.assign(kernel=~none, talking=none, crossing=none))
    return pd.concat(frames, ignore_index=True)


def calls(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """Return one row per CUDA call of the CPU.

    Columns: `start` and `end` in ns, `correlation`, `process`, and flags `launches`, `copies` and `waits`.
    """
    frame = _numbers(database, tables, CALL_TABLE, "globalTid", "nameId")
    names = frame.pop("name")
    frame["process"] &= PROCESS
    kinds = {"launches": LAUNCHING, "copies": COPYING, "waits": WAITING}
    return frame.assign(**{kind: names.isin(_named(database, beginnings)) for kind, beginnings in kinds.items()})


def outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Return correlation ID, start and end (ns) of one process's calls; of calls with the same ID, the outermost one.

    A runtime call may share its ID with the driver's call inside it.
    """
    if calls["correlation"].duplicated().any():
        calls = calls.sort_values(["start", "end"], ascending=[True, False])
    return calls.drop_duplicates("correlation")[["correlation", "start", "end"]]


def _communicating(database: sqlite3.Connection, tables: set[str]) -> list[int]:
    """Return the numbers of the demangled names of kernels that communicate."""
    table, column = ACTIVITIES[0], "demangledName"
    query = f"SELECT id, value FROM StringIds WHERE id IN (SELECT DISTINCT {column} FROM {table})"
    rows = database.execute(query) if table in tables else ()
    return [number for number, value in rows if communicates(value)]


def _named(database: sqlite3.Connection, beginnings: tuple[str, ...]) -> list[int]:
    """Return the numbers of the strings with one of these beginnings; rows refer to strings by number."""
    rows = database.execute("SELECT id, value FROM StringIds").fetchall()
    return [number for number, value in rows if value.startswith(beginnings)]


def _numbers(database: sqlite3.Connection, tables: set[str], table: str, process: str, name: str) -> pd.DataFrame:
    """Return (start, end, correlation ID, process, number of the name) of each row of a table; empty without the table.

    The values are streamed, so that a million rows do not become Python objects at the same time.

    process, name: columns of the table for the process and the name; without a name, its number is 0.
    """
    read = sql_for_numbers(database, table, ["start", "end", "correlationId", process, *([name] if name else [])])
    query = f"SELECT {', '.join([*read.values(), *([] if name else ['0'])])} FROM {table}"
    rows = database.execute(query) if table in tables else ()
    columns = ["start", "end", "correlation", "process", "name"]
    return pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=columns)
