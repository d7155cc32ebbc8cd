"""Copies a foreign export of Nsight Systems (SQLite) and adds what profzoo reads: lacking columns, steps and parts."""

import functools
import shutil
import sqlite3
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from profzoo.errors import DataError
from profzoo.io import file_checks
from profzoo.range_names import make_nvtx_name
from profzoo.tools.nsys.export_columns import READ, TEXTS, existing_columns
from profzoo.tools.nsys.trace import CALL_TABLE, KERNEL_TABLE, PROCESS, PUSH_POP

STRINGS, RANGES = "StringIds", "NVTX_EVENTS"
AGAIN = "export the report again with `nsys export --type sqlite`"
# What stands for a lacking column that is never empty.
INSTEAD = {"streamId": 0, "copyKind": 0, "graphId": 0}
# Either of these names a kernel where the other is lacking.
NAMES = ("demangledName", "shortName")


@contextmanager
def open_copy(source: str, target: str) -> Iterator[sqlite3.Connection]:
    """Copy an export and open the copy for changes, which are kept if the body succeeds.

    Raises:
        DataError: it is no export of nsys, is damaged, or lacks columns without which nothing is known.
    """
    path = Path(source)
    if why := file_checks.find_flaw(path) if path.suffix == ".sqlite" else None:
        raise DataError(f"{source} is damaged ({' '.join(why.split())}): copy it again, or {AGAIN}")
    shutil.copyfile(source, target)
    try:
        with closing(sqlite3.connect(f"file:{urllib.parse.quote(target)}", uri=True)) as database:
            database.execute("PRAGMA synchronous = OFF")
            # What nsys says of the machine may hold any bytes.
            database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if STRINGS not in tables:
                raise DataError(f"{source} is no export of nsys, as it has no table {STRINGS}: {AGAIN}")
            _mend_texts(database)
            _complete(database, tables, source)
            yield database
            database.commit()
    except sqlite3.Error as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{source} is no export of nsys, or damaged: {why}: {AGAIN}") from error


def _mend_texts(database: sqlite3.Connection) -> None:
    """Replace what is no UTF-8 in texts, such as names of files that nsys copies as they are."""
    for table, columns in TEXTS.items():
        for column in set(columns) & existing_columns(database, table):
            rows = database.execute(f"SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE {column} IS NOT NULL")
            damaged = [(raw.decode(errors="replace"), row) for row, raw in rows if not _is_text(raw)]
            database.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", damaged)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _complete(database: sqlite3.Connection, tables: set[str], source: str) -> None:
    """Add lacking columns that profzoo reads, with what stands for nothing.

    Raises:
        DataError: a column is lacking that nothing stands for.
    """
    if RANGES not in tables:
        database.execute(f"CREATE TABLE {RANGES} (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
                         "textId INTEGER, globalTid INTEGER)")  # fmt: skip
    for table, columns in READ.items():
        has = existing_columns(database, table)
        if not has:
            continue
        for name, column in columns.items():
            if name in has or column.missing:
                continue
            other = next((one for one in NAMES if name in NAMES and one in has), None)
            if not (column.null or name in INSTEAD or other):
                raise DataError(f"{source}: its table {table} has no column {name}: {AGAIN}, by nsys 2021 or later")
            database.execute(f"ALTER TABLE {table} ADD COLUMN {name} INTEGER")
            if other or name in INSTEAD:
                database.execute(f"UPDATE {table} SET {name} = {other or INSTEAD[name]}")
        for name in TEXTS.get(table, {}):
            if name not in has:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")
    _name_processes(database, tables)
    if KERNEL_TABLE in tables:
        # Kernels are told apart by mangled names; where there are none, by others.
        if "mangledName" not in existing_columns(database, KERNEL_TABLE):
            database.execute(f"ALTER TABLE {KERNEL_TABLE} ADD COLUMN mangledName INTEGER")
        lacking = "mangledName IS NULL OR mangledName = 0"
        database.execute(f"UPDATE {KERNEL_TABLE} SET mangledName = demangledName WHERE {lacking}")


def _name_processes(database: sqlite3.Connection, tables: set[str]) -> None:
    """Give events without a process that of the trace, where there is only one."""
    if CALL_TABLE not in tables:
        return
    rows = database.execute(f"SELECT DISTINCT globalTid & {PROCESS} FROM {CALL_TABLE} WHERE globalTid IS NOT NULL")
    known = [number for (number,) in rows]
    if len(known) == 1:
        for table, columns in READ.items():
            if "globalPid" in columns and "globalPid" in existing_columns(database, table):
                database.execute(f"UPDATE {table} SET globalPid = ? WHERE globalPid IS NULL", known)


def add_ranges(database: sqlite3.Connection, process: int, ranges: Sequence[tuple[str, int, int]]) -> None:
    """Add ranges of profzoo's to a process: name, such as `step`, start and end in ns."""
    has = existing_columns(database, RANGES)
    columns = ["start", "end", "eventType", "text", "globalTid", *(["textId"] if "textId" in has else [])]
    rows = [
        (start, end, PUSH_POP, make_nvtx_name(name), process, *([None] if "textId" in has else []))
        for name, start, end in ranges
    ]
    # Exports of schema 2 declare columns NOT NULL that say nothing here.
    declared = [(row[1], row[3], row[4]) for row in database.execute(f"PRAGMA table_info({RANGES})")]
    more = [name for name, required, default in declared if required and default is None and name not in columns]
    marks = ", ".join("?" * (len(columns) + len(more)))
    database.executemany(
        f"INSERT INTO {RANGES} ({', '.join([*columns, *more])}) VALUES ({marks})",
        [(*row, *[0] * len(more)) for row in rows],
    )


def has_kernels(database: sqlite3.Connection) -> bool:
    """Whether an export holds any kernel."""
    if not existing_columns(database, KERNEL_TABLE):
        return False
    return database.execute(f"SELECT 1 FROM {KERNEL_TABLE} LIMIT 1").fetchone() is not None


def calls_cuda(database: sqlite3.Connection) -> bool:
    """Whether an export holds any call of CUDA, so that its program ran on a GPU."""
    if not existing_columns(database, CALL_TABLE):
        return False
    return database.execute(f"SELECT 1 FROM {CALL_TABLE} LIMIT 1").fetchone() is not None
