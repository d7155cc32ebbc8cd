"""Reads an nsys export (SQLite) into a row a launch configuration and range.

Rows of an export are in no order (they were in that of time before nsys 2025.6), and nothing here relies on one.
"""

import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.range_names import DOMAIN, PARTS, STEP, WINDOW

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
# The range of launches that are in no step of the window, of a whole run.
OUTSIDE = "outside"
NO_STEP = (
    "holds no whole step of the window, so that nothing is known per step: raise nsys.duration, lower nsys.delay, and "
    "have nvtx among nsys.traces"
)
GRAPH = "CUDA graph"
KERNEL_TABLE, GRAPH_TABLE, CALL_TABLE = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "RUNTIME"))
# CUDA runtime and driver calls that have kernels run, by how their names begin.
LAUNCHING_KERNELS = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel",
                     "cudaGraphLaunch", "cuGraphLaunch")  # fmt: skip
# Event types of NVTX_EVENTS, in ENUM_NSYS_EVENT_TYPE of every export.
PUSH_POP, DOMAIN_CREATE = 59, 75
# The bits of a globalTid that name the process, as the signed integer that SQLite computes with.
PROCESS = 0xFFFFFFFFFF000000 - (1 << 64)
CHUNK = 65_536


def summarise(path: str | Path, whole_run: bool = False) -> pd.DataFrame:
    """Launches and GPU times of an export by launch configuration and range, the longest total first.

    A launch belongs to the range that was open, on whatever thread, when it was launched: autograd launches the
    backward pass from a thread of its own. Times are durations on the GPU in ns, `std_ns` that of the population;
    `share` is of the GPU time of all launches. No rows where the trace holds no launch.

    A CUDA graph that was traced whole has a row as one launch, named by the number of the graph, its grid and block 0:
    its time is from its first kernel's start to its last one's end.

    Args:
        whole_run: whether more was traced than the window; launches outside its steps (as window_steps has them) are
            then in the range OUTSIDE, and have no share, unless the trace holds none of these steps.

    Raises:
        DataError: the file is no export of nsys.
    """
    with opened(path) as (database, tables):
        launches = pd.concat([_launches(database, tables), _graph_launches(database, tables)], ignore_index=True)
        if launches.empty:
            return pd.DataFrame(columns=COLUMNS)
        codes = _ranges(launches, ranges_of(database, tables, PARTS))
        steps = window_steps(database, tables, whole_run)
        if whole_run and len(steps):
            launched = launches["launched"].to_numpy()
            moments = np.where(launched < 0, -1 - launched, launched)
            codes[_open_at(moments, launches["process"].to_numpy(), steps) < 0] = len(PARTS) + 1
        names = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
        kernels = _kernel_names(database, tables, names)

    keys = [*(f"pack{index}" for index in range(len(PACKED))), "graph"]
    # In order of their durations, so that sums of floats are those of any order of rows.
    ordered = launches.assign(range=codes).sort_values("ns", kind="stable")
    grouped = ordered.groupby([*keys, "range"], sort=False)["ns"]
    table = grouped.agg(["size", "sum", "mean", "median", "min", "max"])
    table["std_ns"] = grouped.std(ddof=0)
    table = table.reset_index().rename(
        columns={"size": "launches", "sum": "total_ns"}
        | {name: f"{name}_ns" for name in ("mean", "median", "min", "max")}
    )
    table["range"] = np.array(["", *PARTS, OUTSIDE])[table["range"]]
    inside = table["total_ns"].where(table["range"] != OUTSIDE)
    table["share"] = inside / inside.sum()
    table = table.assign(**_unpacked(table, keys[:-1]))
    named = [
        kernels[mangled] if graph < 0 else (f"{GRAPH} {graph}", f"{GRAPH} {graph}", GRAPH)
        for mangled, graph in zip(table["mangled"], table["graph"], strict=True)
    ]
    table["mangled"], table["kernel"], table["function"] = zip(*named, strict=True)
    return table.sort_values(
        ["total_ns", "mangled", "range", *CONFIGURATION], ascending=[False, *[True] * (len(CONFIGURATION) + 2)]
    )[COLUMNS].reset_index(drop=True)


def of_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of launches in steps: of a whole run, the others are none of a step's."""
    return table[table["range"] != OUTSIDE]


def graph_share(table: pd.DataFrame) -> float:
    """The share of GPU time in CUDA graphs that were traced whole."""
    return float(table.loc[table["function"] == GRAPH, "share"].sum())


def traced_steps(path: str | Path, whole_run: bool) -> tuple[int, bool]:
    """How many steps the trace holds, as window_steps has them, and whether it holds the window's beginning.

    Of several processes, each of which runs as many, those of the first.
    """
    with opened(path) as (database, tables):
        steps = window_steps(database, tables, whole_run)
        counts = steps.groupby("process").size()
        return int(counts.max()) if len(counts) else 0, len(_events(database, tables, (WINDOW,))) > 0


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


def _launches(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """A row a launch: its packed configuration, when it was `launched`, process, ns, and `graph`, -1 as it is none.

    A launch whose call was not traced was made before it began: `launched` is then -1 less its start.
    """
    columns = {f"pack{index}": "0" for index in range(len(PACKED))}
    for name, group in zip(columns, PACKED, strict=True):
        for _, column, bits in group:
            columns[name] = f"(({columns[name]}) << {bits}) | coalesce(k.{column}, 0)"
    called = CALL_TABLE in tables
    columns["launched"] = "coalesce(r.start, -1 - k.start)" if called else "-1 - k.start"
    columns |= {"process": "k.globalPid", "ns": "k.end - k.start"}
    if KERNEL_TABLE not in tables:
        return pd.DataFrame(columns=[*columns, "graph"], dtype="int64")
    # A correlation ID is unique within a process only.
    calls = f"LEFT JOIN {CALL_TABLE} r ON r.correlationId = k.correlationId AND r.globalTid & {PROCESS} = k.globalPid"
    joined = f"FROM {KERNEL_TABLE} k {calls if called else ''}"
    frame = _fetched(database, columns, joined)
    (count,) = database.execute(f"SELECT count(*) FROM {KERNEL_TABLE}").fetchone()
    if len(frame) > count:
        # A runtime call and the driver's inside it share an ID: the outer one is when the launch was made.
        frame = _fetched(database, columns | {"row": "k.rowid"}, joined)
        frame = frame.sort_values(["row", "launched"]).drop_duplicates("row").drop(columns="row")
    return frame.assign(graph=-1)


def _fetched(database: sqlite3.Connection, columns: dict[str, str], source: str) -> pd.DataFrame:
    """Whole numbers that SQLite computes, by column, a chunk at a time."""
    cursor = database.execute(f"SELECT {', '.join(columns.values())} {source}")
    chunks = [np.empty((0, len(columns)), dtype=np.int64)]
    while rows := cursor.fetchmany(CHUNK):
        chunks.append(np.array(rows, dtype=np.int64))
    return pd.DataFrame(np.concatenate(chunks), columns=list(columns))


def graphs(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """CUDA graphs that were traced whole, a row a launch: start, end in ns, correlation, process, number of the graph.

    Without those whose kernels the trace has, and those that CUPTI could not time.
    """
    columns = ["start", "end", "correlation", "process", "graph"]
    if GRAPH_TABLE not in tables:
        return pd.DataFrame(columns=columns, dtype="int64")
    known = f"SELECT correlationId, globalPid FROM {KERNEL_TABLE} WHERE correlationId IS NOT NULL"
    alone = f"AND (correlationId, globalPid) NOT IN ({known})" if KERNEL_TABLE in tables else ""
    rows = database.execute(
        f"SELECT start, end, correlationId, globalPid, graphId FROM {GRAPH_TABLE} WHERE end > 0 {alone}"
    ).fetchall()
    return pd.DataFrame(rows, columns=columns, dtype="int64")


def _graph_launches(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """The CUDA graphs that were traced whole, as _launches has kernels."""
    found = graphs(database, tables)
    key = ["correlation", "process"]
    calls = pd.DataFrame(columns=[*key, "launched"], dtype="int64")
    if len(found) and CALL_TABLE in tables:
        rows = database.execute(
            f"SELECT correlationId, globalTid & {PROCESS}, min(start) FROM {CALL_TABLE} "
            f"WHERE correlationId IN (SELECT correlationId FROM {GRAPH_TABLE}) GROUP BY 1, 2"
        ).fetchall()
        calls = pd.DataFrame(rows, columns=calls.columns, dtype="int64")
    found = found.merge(calls, on=key, how="left")
    packed = dict.fromkeys((f"pack{index}" for index in range(len(PACKED))), 0)
    found = found.assign(**packed, launched=found["launched"].fillna(-1 - found["start"]).astype("int64"))
    return found.assign(ns=found["end"] - found["start"]).drop(columns=["start", "end", "correlation"])


def _kernel_names(
    database: sqlite3.Connection, tables: set[str], names: dict[int, str]
) -> dict[int, tuple[str, str, str]]:
    """Of each kernel, by the number of its mangled name: that, the demangled and the short one."""
    if KERNEL_TABLE not in tables:
        return {}
    shown = database.execute(
        f"SELECT coalesce(mangledName, 0), min(demangledName), min(shortName) FROM {KERNEL_TABLE} GROUP BY 1"
    )
    return {mangled: (names.get(mangled, ""), names[long], names[short]) for mangled, long, short in shown}


def window_steps(database: sqlite3.Connection, tables: set[str], whole_run: bool) -> pd.DataFrame:
    """The steps that count, as ranges_of has them.

    Of a trace of the window they are all. Of a whole run they are those after the window's beginning, or all where the
    trace does not have that, but for those that the trace's end cut off, or the work that they launched.
    """
    steps = ranges_of(database, tables, (STEP,))
    if not whole_run or steps.empty:
        return steps
    if "ANALYSIS_DETAILS" in tables:
        # nsys closes what is open when it stops at that very moment.
        (stopped,) = database.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
        steps = steps[steps["end"] < (np.inf if stopped is None else stopped)]
    begins = _events(database, tables, (WINDOW,)).groupby("process")["start"].min()
    lost = _first_lost(database, tables)
    steps = steps[steps["start"] >= steps["process"].map(begins).fillna(-np.inf)]
    return steps[steps["end"] <= steps["process"].map(lost).fillna(np.inf)].reset_index(drop=True)


def _first_lost(database: sqlite3.Connection, tables: set[str]) -> pd.Series:
    """By process, when the first of the launches was made that had not run when the trace ended.

    These come after the last of those that had; one without a kernel among others was captured into a graph.
    """
    if CALL_TABLE not in tables:
        return pd.Series(dtype="int64")
    like = " OR ".join(f"value LIKE '{name}%'" for name in LAUNCHING_KERNELS)
    calls = database.execute(
        f"SELECT globalTid & {PROCESS}, correlationId, start FROM {CALL_TABLE} "
        f"WHERE nameId IN (SELECT id FROM StringIds WHERE {like})"
    ).fetchall()
    made = pd.DataFrame(calls, columns=["process", "correlation", "start"], dtype="int64")
    ran = [
        database.execute(f"SELECT DISTINCT globalPid, correlationId FROM {table}").fetchall()
        for table in (KERNEL_TABLE, GRAPH_TABLE)
        if table in tables
    ]
    done = pd.MultiIndex.from_frame(made[["process", "correlation"]]).isin([pair for pairs in ran for pair in pairs])
    last = made[done].groupby("process")["start"].max()
    after = made["start"] > made["process"].map(last).fillna(-np.inf)
    return made[after].groupby("process")["start"].min()


def ranges_of(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> pd.DataFrame:
    """The domain's ranges of these names (step, forward, ...) on the CPU: name, start, end in ns, process; by start.

    Those that were never closed are left out.
    """
    found = _events(database, tables, names)
    return found[found["end"].notna()].astype({"end": "int64"}).reset_index(drop=True)


def _events(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> pd.DataFrame:
    """The domain's ranges of these names, closed or not, as ranges_of has them."""
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
        f"WHERE eventType = ?) WHERE name IN ({', '.join('?' * len(names))}) ORDER BY start, end, name",
        (PUSH_POP, *names),
    ).fetchall()
    if domains:  # An export that starts after the domain was made does not name it.
        rows = [row for row in rows if (row[4], row[3]) in domains]
    return pd.DataFrame(rows, columns=columns)


def _ranges(launches: pd.DataFrame, parts: pd.DataFrame) -> np.ndarray:
    """Of each launch, 1 + the index in PARTS of the range that was open when it was made, 0 where none was."""
    codes = np.append(parts["name"].map(PARTS.index).to_numpy(dtype=np.int8) + 1, 0)
    # The last is what an index of -1 finds.
    return codes[_open_at(launches["launched"].to_numpy(), launches["process"].to_numpy(), parts)]


def _open_at(moments: np.ndarray, process: np.ndarray, ranges: pd.DataFrame) -> np.ndarray:
    """At each moment of a process, the position of its range that was open, -1 where none was.

    Such ranges follow one another without overlap, so the last one that began before is the only candidate.
    """
    found = np.full(len(moments), -1)
    for one, at in ranges.groupby("process").indices.items():
        mine = np.flatnonzero(process == one)
        starts, ends = ranges["start"].to_numpy(dtype=np.int64)[at], ranges["end"].to_numpy(dtype=np.int64)[at]
        last = np.searchsorted(starts, moments[mine], side="right") - 1
        inside = (last >= 0) & (moments[mine] < ends[last])
        found[mine[inside]] = at[last[inside]]
    return found


def _unpacked(table: pd.DataFrame, keys: list[str]) -> dict[str, np.ndarray]:
    columns = {}
    for key, group in zip(keys, PACKED, strict=True):
        rest = table[key].to_numpy()
        for name, _, bits in reversed(group):
            columns[name], rest = rest & ((1 << bits) - 1), rest >> bits
    return columns
