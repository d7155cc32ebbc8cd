"""Reads from an nsys export (SQLite) when the GPU was active and when the CPU made CUDA calls."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.tools.communication_kernels import communicates
from profzoo.tools.nsys.export_columns import sql_for_numbers
from profzoo.tools.nsys.trace import CALL_TABLE, PROCESS, read_graphs, read_integers

# CUDA runtime and driver calls, by how their names begin; versions follow (cudaLaunchKernel_v7000).
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch",
             "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset",
             # Of traces that torch.profiler made on GPUs of AMD.
             "hipLaunch", "hipExtLaunch", "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch", "hipMemcpy",
             "hipMemset")  # fmt: skip
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
           "cuCtxSynchronize", "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize",
           "hipEventSynchronize")  # fmt: skip
COPYING = ("cudaMemcpy", "cuMemcpy", "hipMemcpy")
# CUPTI's kinds of copies that cross between host and device: to and from device memory, and arrays.
CROSSING = (1, 2, 3, 4)
ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def activity(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """What the GPU did: start and end in ns, correlation ID, process, and whether it is a kernel, a kernel that
    communicates, or a copy between host and device."""  # fmt: skip
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
    # What communicates or crosses in a graph that was traced whole is not known.
    none = np.full(len(whole), False)
    frames.append(whole.assign(kernel=~none, talking=none, crossing=none))
    return pd.concat(frames, ignore_index=True)


def calls(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """CUDA calls of the CPU: start and end in ns, correlation ID, process, and whether they launch, copy or wait."""
    frame = _numbers(database, tables, CALL_TABLE, "globalTid", "nameId")
    names = frame.pop("name")
    frame["process"] &= PROCESS
    kinds = {"launches": LAUNCHING, "copies": COPYING, "waits": WAITING}
    return frame.assign(**{kind: names.isin(_named(database, beginnings)) for kind, beginnings in kinds.items()})


def outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Correlation ID, start and end of one process's calls; of those that share an ID, of the one around the others.

    A runtime call may share its ID with the driver's that it makes.
    """
    if calls["correlation"].duplicated().any():
        calls = calls.sort_values(["start", "end"], ascending=[True, False])
    return calls.drop_duplicates("correlation")[["correlation", "start", "end"]]


def _communicating(database: sqlite3.Connection, tables: set[str]) -> list[int]:
    """Of kernels that communicate, the numbers of their demangled names."""
    table, column = ACTIVITIES[0], "demangledName"
    query = f"SELECT id, value FROM StringIds WHERE id IN (SELECT DISTINCT {column} FROM {table})"
    rows = database.execute(query) if table in tables else ()
    return [number for number, value in rows if communicates(value)]


def _named(database: sqlite3.Connection, beginnings: tuple[str, ...]) -> list[int]:
    """Of strings that begin so, the numbers by which rows refer to them."""
    rows = database.execute("SELECT id, value FROM StringIds").fetchall()
    return [number for number, value in rows if value.startswith(beginnings)]


def _numbers(database: sqlite3.Connection, tables: set[str], table: str, process: str, name: str) -> pd.DataFrame:
    """Start, end, correlation ID, process and number of the name of each row of a table; none where it is not there.

    Without a Python object for each of a million rows at a time. process, name: columns of these; 0 for no name.
    """
    read = sql_for_numbers(database, table, ["start", "end", "correlationId", process, *([name] if name else [])])
    query = f"SELECT {', '.join([*read.values(), *([] if name else ['0'])])} FROM {table}"
    rows = database.execute(query) if table in tables else ()
    columns = ["start", "end", "correlation", "process", "name"]
    return pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=columns)
