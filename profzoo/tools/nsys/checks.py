"""Looks whether an nsys export (SQLite) is whole, and its numbers are numbers: SQLite itself takes text for 0."""

import functools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from profzoo import integrity
from profzoo.tools.nsys.packing import PACKED

TIMES = 2**62
# Of columns that are read, the largest number that each may hold.
LARGEST = {column: 2**bits - 1 for group in PACKED for _, column, bits in group}
LARGEST |= dict.fromkeys(["start", "end"], TIMES)
LARGEST |= dict.fromkeys(
    ["correlationId", "demangledName", "shortName", "nameId", "textId", "graphId", "copyKind"], 2**40
)
LARGEST |= {"eventType": 2**31, "id": 2**40, "graphNodeId": 2**63 - 1}
# Times may be from before the trace began.
SIGNED = {"start", "end", "correlationId"}
# Those that nsys may leave empty: what it does not know of a kernel, and what an event has none of.
EMPTY = {
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        "correlationId",
        "graphNodeId",
        *(column for group in PACKED for _, column, _ in group),
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {"graphNodeId"},
    "CUPTI_ACTIVITY_KIND_MEMSET": {"graphNodeId"},
    "NVTX_EVENTS": {"end", "textId", "globalTid", "domainId"},
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {"end"},
}
TABLES = (
    "StringIds",
    "NVTX_EVENTS",
    *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "GRAPH_TRACE")),
)


@functools.lru_cache(maxsize=64)
def _damage(path: Path, changed_ns: int, size: int) -> str | None:
    if why := integrity.flaw(path):
        return f"damaged ({' '.join(why.split())})"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        for table in TABLES:
            if wrong := _wrong(database, table):
                return wrong
    return None


def damage(path: Path) -> str | None:
    """What is wrong with the file, None where nothing is; looked at once as long as the file stays as it is.

    Raises:
        sqlite3.Error, OSError: it cannot be read at all.
    """
    state = path.stat()
    return _damage(path, state.st_mtime_ns, state.st_size)


def _wrong(database: sqlite3.Connection, table: str) -> str | None:
    """Whether a row of a table holds what it cannot; None also where there is no such table."""
    there = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
    holds = list(_conditions(table, there))
    if not holds:
        return None
    row = database.execute(f"SELECT rowid FROM {table} WHERE NOT ({' AND '.join(holds)}) LIMIT 1").fetchone()
    return f"row {row[0]} of {table} holds what is no number there, or cannot be one" if row else None


def _conditions(table: str, columns: list[str]) -> Iterator[str]:
    """What holds of each sound row, in SQL; nothing is text, which is larger than any number."""
    numbers = [name for name in columns if name in LARGEST]
    empty = EMPTY.get(table, set())
    for name in numbers:
        given = f"coalesce({name}, {0 if name in empty else repr('')})"
        yield f"{given} BETWEEN {-TIMES if name in SIGNED else 0} AND {LARGEST[name]}"
        yield f"typeof({given}) = 'integer'"
    if {"start", "end"} <= set(columns) and "end" not in empty:
        yield "start <= end"
    for name in {"globalPid", "globalTid", "domainId"} & set(columns):
        yield f"typeof({name}) IN ('integer', '{'null' if name in empty else 'integer'}')"
    if table == "NVTX_EVENTS" and "text" in columns:
        yield "typeof(text) IN ('text', 'null')"
    if table == "StringIds" and "value" in columns:
        yield "typeof(value) = 'text'"
