"""Reads the launches of an nsys export (SQLite): when each was made, in which range, and its launch configuration."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys.configuration_packing import PACKED
from profzoo.tools.nsys.export_columns import sql_for_numbers
from profzoo.tools.nsys.trace import (
    CALL_TABLE,
    GRAPH_TABLE,
    KERNEL_TABLE,
    PROCESS,
    DamagedError,
    read_graphs,
    read_integers,
)

CONFIGURATION = [name for group in PACKED for name, _, _ in group if name != "mangled"]
PACKS = [f"pack{index}" for index in range(len(PACKED))]


def read_launches(
    database: sqlite3.Connection, tables: set[str], placed: bool = False, began: bool = False
) -> pd.DataFrame:
    """Return one row per kernel launch or launch of a CUDA graph that was traced as a whole.

    Columns: PACKS, the packed launch configuration; `launched`, the start of the launching call in ns; `process`; `ns`,
    the time on the GPU; `graph`, the number of the graph, -1 for a kernel. If the call was not traced, `launched` is
    -1 minus the start on the GPU.

    Args:
        placed: add `start` in ns, `stream` (-1 for a graph), and `correlation` of the launching call.
        began: add `start` in ns, and `node`, the number of the node of a CUDA graph, 0 for none.
    """
    graphs = _of_graphs(database, tables)
    if placed:
        graphs["stream"] = -1
    else:
        graphs = graphs.drop(columns=["correlation"] if began else ["start", "correlation"])
    if began:
        graphs["node"] = 0
    return pd.concat([_of_kernels(database, tables, placed, began), graphs], ignore_index=True)


def _of_kernels(database: sqlite3.Connection, tables: set[str], placed: bool, began: bool) -> pd.DataFrame:
    called = CALL_TABLE in tables
    columns = _packed(database)
    columns["launched"] = "coalesce(r.start, -1 - k.start)" if called else "-1 - k.start"
    wanted = {"process": "globalPid"}
    wanted |= {"node": "graphNodeId"} if began else {}
    wanted |= {"stream": "streamId", "correlation": "correlationId"} if placed else {}
    read = sql_for_numbers(database, KERNEL_TABLE, list(wanted.values()), "k")
    columns |= {name: read[column] for name, column in wanted.items()} | {"ns": "k.end - k.start"}
    if placed or began:
        columns["start"] = "k.start"
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


def _packed(database: sqlite3.Connection) -> dict[str, str]:
    """Return SQL expressions that pack the launch configuration of a kernel in table `k`, by name in PACKS.

    A kernel without a mangled name is identified by its demangled name.
    """
    names = [column for group in PACKED for _, column, _ in group]
    read = sql_for_numbers(database, KERNEL_TABLE, names, "k") | {"mangledName": _identity(database, "k")}
    columns = dict.fromkeys(PACKS, "0")
    for name, group in zip(PACKS, PACKED, strict=True):
        for _, column, bits in group:
            columns[name] = f"(({columns[name]}) << {bits}) | {read[column]}"
    return columns


def _identity(database: sqlite3.Connection, alias: str) -> str:
    """Return the SQL expression that identifies a kernel: number of its mangled name, or else of its demangled name."""
    mangled = sql_for_numbers(database, KERNEL_TABLE, ["mangledName"], alias)["mangledName"]
    return f"coalesce(nullif({mangled}, 0), {alias}.demangledName)"


def _fetched(database: sqlite3.Connection, columns: dict[str, str], source: str) -> pd.DataFrame:
    """Return integers that SQLite computes; columns: SQL expression by column."""
    cursor = database.execute(f"SELECT {', '.join(columns.values())} {source}")
    return pd.DataFrame(read_integers(cursor).reshape(-1, len(columns)), columns=list(columns))


def _of_graphs(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    found = read_graphs(database, tables)
    key = ["correlation", "process"]
    calls = pd.DataFrame(columns=[*key, "launched"], dtype="int64")
    if len(found) and CALL_TABLE in tables:
        rows = database.execute(
            f"SELECT correlationId, globalTid & {PROCESS}, min(start) FROM {CALL_TABLE} "
            f"WHERE correlationId IN (SELECT correlationId FROM {GRAPH_TABLE}) GROUP BY 1, 2"
        ).fetchall()
        calls = pd.DataFrame(rows, columns=calls.columns, dtype="int64")
    found = found.merge(calls, on=key, how="left")
    found = found.assign(
        **dict.fromkeys(PACKS, 0), launched=found["launched"].fillna(-1 - found["start"]).astype("int64")
    )
    return found.assign(ns=found["end"] - found["start"]).drop(columns="end")


def unpack_configurations(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Unpack the PACKS columns to launch configurations, by column.

    >>> grid = {"grid_y": 3, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
    >>> packed = 0
    >>> for name, _, bits in PACKED[1]:
    ...     packed = packed << bits | grid[name]
    >>> columns = unpack_configurations(pd.DataFrame({"pack0": [0], "pack1": [packed], "pack2": [0]}))
    >>> {name: int(columns[name][0]) for name in grid} == grid
    True
    """
    columns = {}
    for name_of_pack, group in zip(PACKS, PACKED, strict=True):
        rest = table[name_of_pack].to_numpy()
        for name, _, bits in reversed(group):
            columns[name], rest = rest & ((1 << bits) - 1), rest >> bits
    return columns


def kernel_names(database: sqlite3.Connection, tables: set[str]) -> dict[int, tuple[str, str, str]]:
    """Return (mangled, demangled, short) names of each kernel, by the number that identifies it in PACKS.

    The mangled name is empty if the trace does not have it.

    Raises:
        DamagedError: a name is missing from the export.
    """
    if KERNEL_TABLE not in tables:
        return {}
    names = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
    mangled = sql_for_numbers(database, KERNEL_TABLE, ["mangledName"], "k")["mangledName"]
    shown = database.execute(
        f"SELECT {_identity(database, 'k')}, max({mangled}), min(k.demangledName), min(k.shortName) "
        f"FROM {KERNEL_TABLE} k GROUP BY 1"
    )
    try:
        return {
            number: (names[mangled] if mangled else "", names[long], names[short])
            for number, mangled, long, short in shown
        }
    except KeyError as error:
        raise DamagedError(f"a kernel's name is string {error}, and there is none of that number") from None


def find_ranges(launches: pd.DataFrame, parts: pd.DataFrame) -> np.ndarray:
    """Return, per launch, 1 + the index in LAUNCHING of the range open at the launching call; 0 if none was open."""
    codes = np.append(parts["name"].map(LAUNCHING.index).to_numpy(dtype=np.int8) + 1, 0)
    # An index of -1 finds the last element, which means no range.
    return codes[_open_at(launches["launched"].to_numpy(), launches["process"].to_numpy(), parts)]


def is_outside_steps(launches: pd.DataFrame, steps: pd.DataFrame) -> np.ndarray:
    """Return, per launch, whether it was made outside all of these steps."""
    return step_positions(launches, steps) < 0


def step_positions(launches: pd.DataFrame, steps: pd.DataFrame) -> np.ndarray:
    """Return, per launch, the position of the step in which it was made; -1 if in none."""
    return _open_at(launch_times(launches), launches["process"].to_numpy(), steps)


def launch_times(launches: pd.DataFrame) -> np.ndarray:
    """Return the time of each launching call, in ns, or the kernel's start if the call was not traced."""
    launched = launches["launched"].to_numpy()
    return np.where(launched < 0, -1 - launched, launched)


def _open_at(moments: np.ndarray, process: np.ndarray, ranges: pd.DataFrame) -> np.ndarray:
    """Return, per moment (ns) of a process, the position of the range that was open; -1 if none was.

    The ranges of a process do not overlap, so the last one that began before is the only candidate.
    """
    found = np.full(len(moments), -1)
    for one, at in ranges.groupby("process").indices.items():
        mine = np.flatnonzero(process == one)
        starts, ends = ranges["start"].to_numpy(dtype=np.int64)[at], ranges["end"].to_numpy(dtype=np.int64)[at]
        last = np.searchsorted(starts, moments[mine], side="right") - 1
        inside = (last >= 0) & (moments[mine] < ends[last])
        found[mine[inside]] = at[last[inside]]
    return found
