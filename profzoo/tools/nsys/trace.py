"""Opens an nsys export (SQLite) and reads what other modules share: ranges, the steps that count, CUDA graphs.

Rows of an export have no order since nsys 2025.6 (before, they were ordered by time). No code here relies on an order.
"""

import itertools
import sqlite3
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.range_names import PREFIX, STEP, WINDOW, make_nvtx_name
from profzoo.tools.nsys import export_checks
from profzoo.tools.nsys.export_checks import AGAIN
from profzoo.tools.nsys.export_columns import sql_for_numbers

KERNEL_TABLE, GRAPH_TABLE, CALL_TABLE = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "RUNTIME"))
# Beginnings of the names of CUDA runtime and driver calls that launch kernels.
LAUNCHING_KERNELS = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel",
                     "cudaGraphLaunch", "cuGraphLaunch")  # fmt: skip
# Event types of ranges in NVTX_EVENTS, in ENUM_NSYS_EVENT_TYPE of every export, and the SQL of a range's name.
PUSH_POP, START_END = 59, 60
RANGE_TEXT = "coalesce(nullif(text, ''), (SELECT value FROM StringIds WHERE id = textId))"
NO_WHOLE_STEP = (
    "holds no whole step of the window, so no values per step are known: raise nsys.duration, lower nsys.delay, and "
    "have nvtx among nsys.traces"
)
NO_STEP = (
    "holds no step of the window, so no values per step are known, and launches have no range: this nsys did not see "
    "the program's NVTX ranges (`snakemake doctor` checks this), or the program never began a step (see its log)"
)
EARLIER = (
    f"its ranges named {STEP} are the program's own, or those of an earlier profzoo: such traces must be made again"
)
# The bits of a globalTid that name the process, as the signed integer that SQLite computes with.
PROCESS = 0xFFFFFFFFFF000000 - (1 << 64)


class DamagedError(ValueError):
    """The content of an export is impossible; the message says why, without the file's name."""


@contextmanager
def open_export(path: str | Path) -> Iterator[tuple[sqlite3.Connection, set[str]]]:
    """Open an export for reading; yields the connection and the names of its tables.

    Raises:
        DataError: the file is no export, or is damaged; also if only the body of the `with` block finds the damage.
    """
    try:
        database = sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?mode=ro", uri=True)
    except sqlite3.OperationalError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    with closing(database):
        try:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            wrong = export_checks.find_damage(Path(path))
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is no SQLite export of nsys, or damaged: {_line(error)}: {AGAIN}") from error
        if wrong:
            raise DataError(f"{path}: {wrong}")
        if "StringIds" not in tables:
            raise DataError(f"{path} is no export of nsys, as it has no table StringIds: {AGAIN}")
        try:
            yield database, tables
        except (sqlite3.Error, DamagedError) as error:
            raise DataError(f"{path} {_unread(database, error)}") from error


def _unread(database: sqlite3.Connection, error: Exception) -> str:
    """Explain why an undamaged export could not be read, and what to do."""
    if "no such column" in str(error):
        writer = export_checks.exporting_version(database)
        return f"has another layout ({_line(error)}): {writer} writes it so, {export_checks.OTHER}"
    return f"is damaged, or of an nsys that this workflow does not know: {_line(error)}: {export_checks.ONCE}"


def _line(error: Exception) -> str:
    """Return an error's message in one short line, because SQLite quotes a whole schema."""
    return " ".join(str(error).split())[:200]


def read_integers(rows: Iterable[tuple]) -> np.ndarray:
    """Return all values of the rows as one flat array of integers, shape (rows * columns,).

    The values are streamed, so that a million rows do not become Python objects at the same time.

    Raises:
        DamagedError: a value is empty, or text.
    """
    try:
        return np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"a number is none: {error}") from error


def count_traced_steps(path: str | Path, whole_run: bool) -> tuple[int, bool]:
    """Return the number of complete steps of the window per process, and whether the trace has the window's beginning.

    whole_run: the trace holds more than the window.
    """
    with open_export(path) as (database, tables):
        steps = read_window_steps(database, tables, whole_run)
        counts = steps.groupby("process").size()
        return int(counts.max()) if len(counts) else 0, len(_events(database, tables, (WINDOW,))) > 0


def explain_no_steps(path: str | Path, whole_run: bool) -> str | None:
    """Explain why a trace contains no complete step, as text to follow its name, or return None."""
    with open_export(path) as (database, tables):
        if len(read_window_steps(database, tables, whole_run)):
            return None
        why = NO_WHOLE_STEP if whole_run else NO_STEP
        earlier = not _named(database, tables, (make_nvtx_name(STEP),)) and _named(database, tables, (STEP,))
    return f"{why}; {EARLIER}" if earlier else why


def read_window_steps(database: sqlite3.Connection, tables: set[str], whole_run: bool) -> pd.DataFrame:
    """Return the complete steps of the window, with the columns of read_ranges.

    In a trace of the window, these are all steps. In a trace of a whole run, these are the steps after the window's
    beginning, or all steps if the trace lacks it. Steps are left out if the trace ended before them or their work.
    """
    steps = read_ranges(database, tables, (STEP,))
    if not whole_run or steps.empty:
        return steps
    if "ANALYSIS_DETAILS" in tables:
        # When nsys stops, it closes open ranges at that moment.
        (stopped,) = database.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
        steps = steps[steps["end"] < (np.inf if stopped is None else stopped)]
    begins = _events(database, tables, (WINDOW,)).groupby("process")["start"].min()
    lost = _first_lost(database, tables)
    steps = steps[steps["start"] >= steps["process"].map(begins).fillna(-np.inf)]
    return steps[steps["end"] <= steps["process"].map(lost).fillna(np.inf)].reset_index(drop=True)


def _first_lost(database: sqlite3.Connection, tables: set[str]) -> pd.Series:
    """Return by process the time in ns of the first launching call whose kernel had not run when the trace ended.

    Only calls after the last one with a kernel count; an earlier call without a kernel was captured into a graph.
    """
    if CALL_TABLE not in tables:
        return pd.Series(dtype="int64")
    like = " OR ".join(f"value LIKE '{name}%'" for name in LAUNCHING_KERNELS)
    of_call, launched = ["globalTid", "correlationId"], ["globalPid", "correlationId"]
    thread, correlation = sql_for_numbers(database, CALL_TABLE, of_call).values()
    calls = database.execute(
        f"SELECT {thread} & {PROCESS}, {correlation}, start FROM {CALL_TABLE} "
        f"WHERE nameId IN (SELECT id FROM StringIds WHERE {like})"
    ).fetchall()
    made = pd.DataFrame(calls, columns=["process", "correlation", "start"], dtype="int64")
    ran = [
        database.execute(
            f"SELECT DISTINCT {', '.join(sql_for_numbers(database, table, launched).values())} FROM {table}"
        ).fetchall()
        for table in (KERNEL_TABLE, GRAPH_TABLE)
        if table in tables
    ]
    done = pd.MultiIndex.from_frame(made[["process", "correlation"]]).isin([pair for pairs in ran for pair in pairs])
    last = made[done].groupby("process")["start"].max()
    after = made["start"] > made["process"].map(last).fillna(-np.inf)
    return made[after].groupby("process")["start"].min()


def read_ranges(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> pd.DataFrame:
    """Return profzoo's ranges with these names (step, forward, ...) on the CPU, ordered by start.

    Columns: `name`, `start` and `end` in ns, `process`. Ranges that were never closed are left out. Ranges of the
    program itself are not among them, even if they have the same names.
    """
    found = _events(database, tables, names)
    # Exports of schema 2 have 0 where later ones have NULL.
    return found[found["end"] >= found["start"]].reset_index(drop=True)


def _events(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> pd.DataFrame:
    """Return profzoo's ranges with these names, closed or not, with the columns of read_ranges."""
    columns = ["name", "start", "end", "process"]
    found = pd.DataFrame(_named(database, tables, tuple(map(make_nvtx_name, names))), columns=columns)
    return found.assign(name=found["name"].astype("str").str.removeprefix(PREFIX))


def _named(database: sqlite3.Connection, tables: set[str], names: tuple[str, ...]) -> list[tuple]:
    """Return ranges by their names in the trace as rows of name, start, end, process, ordered by start.

    A range that was never closed has an end before its start, because integer columns cannot hold NULL.
    """
    if "NVTX_EVENTS" not in tables:
        return []
    thread = sql_for_numbers(database, "NVTX_EVENTS", ["globalTid"])["globalTid"]
    return database.execute(
        f"SELECT * FROM (SELECT {RANGE_TEXT} AS name, start, coalesce(end, start - 1) AS end, {thread} & {PROCESS} "
        f"FROM NVTX_EVENTS WHERE eventType = ?) WHERE name IN ({', '.join('?' * len(names))}) "
        "ORDER BY start, end, name",
        (PUSH_POP, *names),
    ).fetchall()


def read_graphs(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """Return one row per launch of a CUDA graph that was traced as a whole.

    Columns: `start` and `end` in ns, `correlation`, `process`, `graph` (its number). Graphs whose kernels are in the
    trace are left out, and so are graphs that CUPTI could not time.
    """
    columns = ["start", "end", "correlation", "process", "graph"]
    if GRAPH_TABLE not in tables:
        return pd.DataFrame(columns=columns, dtype="int64")
    launched = ["correlationId", "globalPid"]
    own = ", ".join(sql_for_numbers(database, GRAPH_TABLE, launched).values())
    known = ", ".join(sql_for_numbers(database, KERNEL_TABLE, launched).values())
    with_kernels = f"SELECT {known} FROM {KERNEL_TABLE} WHERE correlationId IS NOT NULL"
    alone = f"AND ({own}) NOT IN ({with_kernels})" if KERNEL_TABLE in tables else ""
    rows = database.execute(
        f"SELECT start, end, {own}, graphId FROM {GRAPH_TABLE} WHERE end > 0 AND end >= start {alone}"
    ).fetchall()
    return pd.DataFrame(rows, columns=columns, dtype="int64")
