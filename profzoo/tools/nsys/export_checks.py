"""Checks that an nsys export (SQLite) is complete and its numbers are numbers: SQLite itself reads text as 0."""

import functools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from profzoo.io import file_checks
from profzoo.tools.nsys.export_columns import READ, TEXTS, existing_columns

AGAIN = "delete it, and the next run traces the cell again"
# Where it is not known whether the tool wrote it, or the file was changed later.
ONCE = f"{AGAIN}; if the new trace has the same, this nsys writes it so: use another one"
OTHER = "so that a new trace would be the same: use an nsys from 2021 to 2026, or a newer profzoo"


@functools.lru_cache(maxsize=64)
def _damage(path: Path, changed_ns: int, size: int) -> str | None:
    if why := file_checks.find_flaw(path):
        return f"damaged ({' '.join(why.split())}): {AGAIN}"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        # A damaged text is to be shown, not to stop what shows it.
        database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        return next(filter(None, (_wrong(database, table) for table in READ)), None)


def find_damage(path: Path) -> str | None:
    """Describe damage to the file and its remedy, or return None; cached as long as the file is unchanged.

    Raises:
        sqlite3.Error, OSError: the file cannot be read at all.
    """
    state = path.stat()
    return _damage(path, state.st_mtime_ns, state.st_size)


def exporting_version(database: sqlite3.Connection) -> str:
    """Return the version of nsys that wrote an export, if it is recorded."""
    try:
        rows = database.execute("SELECT name, value FROM META_DATA_EXPORT").fetchall()
    except sqlite3.Error:
        return "its nsys"
    known = {name: value for name, value in rows if isinstance(value, str)}
    version, schema = (known.get(f"EXPORT_{name}_VERSION", "unknown") for name in ("PRODUCT", "SCHEMA"))
    return f"nsys {version} (export schema {schema})"


def _wrong(database: sqlite3.Connection, table: str) -> str | None:
    """Return which row of a table has an impossible value, and what to do; None if all are sound, or no table."""
    holds = list(_conditions(table, existing_columns(database, table)))
    together = " AND ".join(f"({condition})" for _, condition, _ in holds)
    if not holds or not database.execute(f"SELECT 1 FROM {table} WHERE NOT ({together}) LIMIT 1").fetchone():
        return None
    for column, condition, expected in holds:
        bad = f"FROM {table} WHERE NOT ({condition})"
        row = database.execute(f"SELECT rowid, CAST({column} AS TEXT), typeof({column}) {bad} LIMIT 1").fetchone()
        if row:
            (many,) = database.execute(f"SELECT count(*) {bad}").fetchone()
            (of,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            value = "is NULL" if row[2] == "null" else f"is {str(row[1])[:40]!r} ({row[2]})"
            said = f"{column} in row {row[0]} of {table} {value}, which is no {expected}"
            # Damage does not turn numbers into NULL, nor change most rows of a table: nsys must have written these.
            if row[2] == "null" or (2 * many > of > 1):
                return f"{said}, as in {many} of {of} rows: {exporting_version(database)} wrote it so, {OTHER}"
            return f"{said}: {ONCE}"
    return None


def _conditions(table: str, columns: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions of a sound row: the column, the condition in SQL, and the expected value in words."""
    for name, column in READ[table].items():
        if name in columns:
            # Text is larger than any number.
            number = f"typeof({name}) = 'integer' AND {name} BETWEEN {column.least} AND {column.most}"
            expected = "whole number" if column.least < 0 else f"whole number from 0 to {column.most}"
            yield name, f"{name} IS NULL OR ({number})" if column.null else number, expected
    if {"start", "end"} <= set(READ[table]) & columns and not READ[table]["end"].null:
        yield "end", "start <= end", "time after its start"
    for name, null in TEXTS.get(table, {}).items():
        if name in columns:
            yield name, f"typeof({name}) IN ('text'{', ' + repr('null') if null else ''})", "text"
