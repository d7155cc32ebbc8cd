"""Reads each operation of the GPU from an nsys export (SQLite): when it ran, on which stream, and what it moved."""

import sqlite3
from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.tools.nsys.export_columns import UNKNOWN, sql_for_numbers
from profzoo.tools.nsys.trace import GRAPH_TABLE, KERNEL_TABLE, read_graphs, read_integers
from profzoo.tools.stream_overlap import COPY, KERNEL, MEMSET

COPY_TABLE, SET_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
# CUPTI's kinds of copies, and of memory, in words (CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind).
COPY_KINDS: Mapping[int, str] = {
    1: "host to device", 2: "device to host", 3: "host to array", 4: "array to host", 5: "array to array",
    6: "array to device", 7: "device to array", 8: "device to device", 9: "host to host", 10: "peer to peer",
    11: "unified host to device", 12: "unified device to host", 13: "unified device to device",
}  # fmt: skip
MEMORY_KINDS: Mapping[int, str] = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static",
}  # fmt: skip
UNNAMED = "unknown"
SHARED = ["start", "end", "correlation", "process", "gpu", "stream"]
# What is known of one kind of operation alone: the name of a kernel, and of a copy what it moved.
OF_KIND = {"name": UNKNOWN, "bytes": UNKNOWN, "copy_kind": UNKNOWN, "source": UNKNOWN, "target": UNKNOWN}
COLUMNS = [*SHARED, "kind", *OF_KIND]


def read_spans(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """Return one row per operation of the GPU, in no order.

    Columns: `start` and `end` in ns; `correlation`, which the launching call shares; `process`, as in the export;
    `gpu` and `stream`, their numbers; `kind`, one of stream_overlap.KINDS; `name`, the number of a kernel's demangled
    name; `bytes` that a copy or memset moved; and of a copy the numbers `copy_kind`, `source` and `target`, which
    COPY_KINDS and MEMORY_KINDS name. A number that is not known is UNKNOWN. A CUDA graph that was traced as a whole is
    one operation of the kind of kernels.
    """
    shared = ["start", "end", "correlationId", "globalPid", "deviceId", "streamId"]
    more = {
        KERNEL_TABLE: (KERNEL, {"name": "demangledName"}),
        COPY_TABLE: (COPY, {"bytes": "bytes", "copy_kind": "copyKind", "source": "srcKind", "target": "dstKind"}),
        SET_TABLE: (MEMSET, {"bytes": "bytes"}),
    }
    frames = [_read_graph_spans(database, tables)]
    for table, (kind, own) in more.items():
        if table in tables:
            numbers = _read(database, table, dict(zip(SHARED, shared, strict=True)) | own)
            frames.append(numbers.assign(kind=kind, **{name: OF_KIND[name] for name in OF_KIND if name not in own}))
    return pd.concat([frame[COLUMNS] for frame in frames], ignore_index=True)


def _read_graph_spans(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    whole = read_graphs(database, tables).assign(kind=KERNEL, **OF_KIND)
    if GRAPH_TABLE not in tables:
        return whole.assign(gpu=0, stream=0).astype({"kind": "str"})
    names = {"correlation": "correlationId", "process": "globalPid", "gpu": "deviceId", "stream": "streamId"}
    places = _read(database, GRAPH_TABLE, names).drop_duplicates(["process", "correlation"])
    return whole.merge(places, on=["process", "correlation"], how="left")


def _read(database: sqlite3.Connection, table: str, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return integer columns of a table; columns: names in the export, by new name."""
    read = sql_for_numbers(database, table, list(columns.values()))
    rows = database.execute(f"SELECT {', '.join(read[name] for name in columns.values())} FROM {table}")
    return pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=list(columns), dtype=np.int64)
