"""Reads an nsys export (SQLite) into a row a launch configuration and range."""

import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from models.harness.windows import DOMAIN, PARTS
from workflow.scripts.lib.files import DataError

# A launch configuration, packed by SQLite into three integers of at most 63 bits: fetching a column of a million
# rows into Python takes longer than all else. Each part: (our name, nsys's name, bits); widths by CUDA's limits
# (grid 2^31-1 x 65535 x 65535, block 1024 x 1024 x 64, shared memory under 2^20 bytes, 255 registers).
PACKED = (
    (("mangled", "mangledName", 31), ("grid_x", "gridX", 31)),
    (
        ("grid_y", "gridY", 16),
        ("grid_z", "gridZ", 16),
        ("block_x", "blockX", 11),
        ("block_y", "blockY", 11),
        ("block_z", "blockZ", 7),
    ),
    (
        ("smem_static_bytes", "staticSharedMemory", 24),
        ("smem_dynamic_bytes", "dynamicSharedMemory", 24),
        ("registers", "registersPerThread", 9),
    ),
)
CONFIGURATION = [name for group in PACKED for name, _, _ in group if name != "mangled"]
STATISTICS = ["launches", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share"]
COLUMNS = ["kernel", "mangled", "function", "range", *CONFIGURATION, *STATISTICS]
# Event types of NVTX_EVENTS, in ENUM_NSYS_EVENT_TYPE of every export.
PUSH_POP, DOMAIN_CREATE = 59, 75
# The bits of a globalTid that name the process, as the signed integer that SQLite computes with.
PROCESS = 0xFFFFFFFFFF000000 - (1 << 64)
CHUNK = 65_536


def summarise(path: str | Path) -> pd.DataFrame:
    """Launches and GPU times of an export by launch configuration and range, the longest total first.

    A launch belongs to the range that was open, on whatever thread, when it was launched: autograd launches the
    backward pass from a thread of its own. Times are durations on the GPU in ns, `std_ns` that of the population;
    `share` is of the GPU time of all launches. No rows where the trace holds no launch.

    Raises:
        DataError: the file is no export of nsys.
    """
    with opened(path) as (database, tables):
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
            return pd.DataFrame(columns=COLUMNS)
        packed, launched, process, duration = _launches(database, "CUPTI_ACTIVITY_KIND_RUNTIME" in tables)
        ranges = _ranges(launched, process, ranges_of(database, tables, PARTS))
        names = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
        shown = database.execute(
            "SELECT DISTINCT mangledName, demangledName, shortName FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
        kernels = {mangled: (names[long], names[short]) for mangled, long, short in shown}

    keys = {f"pack{index}": column for index, column in enumerate(packed)}
    grouped = pd.DataFrame(keys | {"range": ranges, "ns": duration}).groupby([*keys, "range"], sort=False)["ns"]
    table = grouped.agg(["size", "sum", "mean", "median", "min", "max"])
    table["std_ns"] = grouped.std(ddof=0)
    table["share"] = table["sum"] / table["sum"].sum()
    table = table.reset_index().rename(
        columns={"size": "launches", "sum": "total_ns"}
        | {name: f"{name}_ns" for name in ("mean", "median", "min", "max")}
    )
    table = table.assign(**_unpacked(table, list(keys)))
    table["range"] = np.array(["", *PARTS])[table["range"]]
    table["kernel"] = table["mangled"].map(lambda name: kernels[name][0])
    table["function"] = table["mangled"].map(lambda name: kernels[name][1])
    table["mangled"] = table["mangled"].map(names)
    return table.sort_values(["total_ns", "mangled"], ascending=[False, True])[COLUMNS].reset_index(drop=True)


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[sqlite3.Connection, set[str]]]:
    """An export for reading, and the names of its tables; DataError where it is none."""
    try:
        database = sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?mode=ro", uri=True)
    except sqlite3.OperationalError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    with closing(database):
        try:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path} is no SQLite export of nsys: {error}") from error
        if "StringIds" not in tables:
            raise DataError(f"{path} is no export of nsys: it has no table StringIds; export the report again")
        yield database, tables


def _launches(database: sqlite3.Connection, calls: bool) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Of each launch: its packed configuration, when the CPU launched it (-1 if unknown), process, duration in ns."""
    columns = []
    for group in PACKED:
        packed = "0"
        for _, column, bits in group:
            packed = f"(({packed}) << {bits}) | coalesce(k.{column}, 0)"
        columns.append(packed)
    launched = "coalesce(r.start, -1)" if calls else "-1"
    # A correlation ID is unique within a process only.
    joined = (
        f"LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
        f"AND r.globalTid & {PROCESS} = k.globalPid"
        if calls
        else ""
    )
    values = ", ".join([*columns, launched, "k.globalPid", "k.end - k.start"])
    cursor = database.execute(f"SELECT {values} FROM CUPTI_ACTIVITY_KIND_KERNEL k {joined}")
    width = len(columns) + 3
    chunks = [np.empty((0, width), dtype=np.int64)]
    while rows := cursor.fetchmany(CHUNK):
        chunks.append(np.array(rows, dtype=np.int64))
    table = np.concatenate(chunks)
    return [table[:, index] for index in range(len(columns))], table[:, -3], table[:, -2], table[:, -1]


def ranges_of(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> pd.DataFrame:
    """The domain's ranges of these names (step, forward, ...) on the CPU: name, start, end in ns, process; by start."""
    columns = ["name", "start", "end", "process", "domain"]
    if "NVTX_EVENTS" not in tables:
        return pd.DataFrame(columns=columns)
    text = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
    domains = database.execute(
        f"SELECT domainId, globalTid & {PROCESS} FROM NVTX_EVENTS WHERE eventType = ? AND {text} = ?",
        (DOMAIN_CREATE, DOMAIN),
    ).fetchall()
    rows = database.execute(
        f"SELECT * FROM (SELECT {text} AS name, start, end, globalTid & {PROCESS}, domainId FROM NVTX_EVENTS "
        f"WHERE eventType = ? AND end IS NOT NULL) WHERE name IN ({', '.join('?' * len(names))}) ORDER BY start",
        (PUSH_POP, *names),
    ).fetchall()
    if domains:  # An export that starts after the domain was made does not name it.
        rows = [row for row in rows if (row[4], row[3]) in domains]
    return pd.DataFrame(rows, columns=columns)


def _ranges(launched: np.ndarray, process: np.ndarray, parts: pd.DataFrame) -> np.ndarray:
    """Of each launch, 1 + the index in PARTS of the range that was open then, 0 where none was.

    The parts of a step follow one another without overlap, so the last one that began before is the only candidate.
    """
    found = np.zeros(len(launched), dtype=np.int8)
    for one, group in parts.groupby("process"):
        mine = np.flatnonzero(process == one)
        last = np.searchsorted(group["start"].to_numpy(), launched[mine], side="right") - 1
        inside = (last >= 0) & (launched[mine] < group["end"].to_numpy()[last])
        codes = group["name"].map(PARTS.index).to_numpy() + 1
        found[mine[inside]] = codes[last[inside]]
    return found


def _unpacked(table: pd.DataFrame, keys: list[str]) -> dict[str, np.ndarray]:
    columns = {}
    for key, group in zip(keys, PACKED, strict=True):
        rest = table[key].to_numpy()
        for name, _, bits in reversed(group):
            columns[name], rest = rest & ((1 << bits) - 1), rest >> bits
    return columns
