"""Reads CSV files by their declarations: names and kinds of columns, and conditions on rows."""

import csv
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import column_types, columns, fast_csv, text_files
from profzoo.io.column_types import Kind
from profzoo.io.columns import Column
from profzoo.io.common_columns import COMMON
from profzoo.io.text_files import SAME

# A row of a table by column, as pandas gives it; the table's `Table` declares the columns.
Row = Mapping[str, Any]
AGAIN = "delete it, and the next run makes it again"
# Names, shapes and stacks may be long; by default, Python refuses fields above 128 KiB.
csv.field_size_limit(2**31 - 1)


def _nothing(given: object) -> None:
    return


@dataclass(frozen=True)
class Table:
    """The declaration of a CSV file, for writers and readers.

    Attributes:
        columns, optional: kinds of required and of optional columns, by name.
        others: function that returns the kind of any further column; None for a column that the table must not have.
        key: columns whose values identify a row.
        holds: function that returns what is wrong with the rows, or None.
        again: advice for a damaged file.
        ranges: lower and upper bound of a column, if their names do not show this (io/number_intervals.py).
        about: descriptions of columns by name or pattern, if io/common_columns.py has none or another one applies.
        formerly: present names of columns by their names in the previous version, which are still read.
    """

    columns: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)
    others: Callable[[str], Kind | None] = _nothing
    key: Sequence[str] = ()
    holds: Callable[[pd.DataFrame], str | None] = _nothing
    again: str = AGAIN
    ranges: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    about: Mapping[str, Column] = field(default_factory=dict)
    formerly: Mapping[str, str] = field(default_factory=dict)

    def kind(self, name: str) -> Kind | None:
        """Return the kind of a column; None for a column that the table must not have."""
        return self.columns.get(name) or self.optional.get(name) or self.others(name)

    def describe(self, name: str) -> Column | None:
        """Return the description of a column; None if neither the table nor the shared dictionary has one."""
        return columns.find(name, self.about, COMMON)

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        return pd.DataFrame({name: column_types.parse_column([], kind) for name, kind in self.columns.items()})


def read(path: str | Path, table: Table) -> pd.DataFrame:
    """Return the rows of a CSV file, with columns in the order of the file.

    Text stays as it is, also `null`, `NA` or an empty text; only numbers may be missing.

    Raises:
        DataError: the file cannot be read, is cut off, or does not match the declaration.
    """
    frame = _frame(text_files.read_text(path, table.again), path, table)
    twice = frame.duplicated([*table.key]) if table.key else frame.index == -1
    if twice.any():
        raise DataError(f"{path}: row {int(twice.argmax()) + 1} occurs twice: {table.again}{SAME}")
    if wrong := table.holds(frame):
        raise DataError(f"{path}: {wrong}: {table.again}{SAME}")
    return frame


def parts(path: str | Path, table: Table, count: int = 50_000) -> Iterator[pd.DataFrame]:
    """Yield the rows of a CSV file in frames of at most `count` rows, for files that may not fit into memory.

    Conditions on all rows together, such as the key, are not checked.

    Raises:
        DataError: as for read.
    """
    with text_files.open_file(path) as file:
        heading, done, taken = file.readline(), 0, [b""]
        while taken:
            taken, quotes = [], 0
            # A cell in quotes may hold the end of a line.
            while (len(taken) < count or quotes % 2) and (line := file.readline()):
                taken.append(line)
                quotes += line.count(b'"')
            if taken or not done:
                where = f"{path}, after row {done}" if done else path
                content = text_files.decode(heading + b"".join(taken), where, table.again)
                yield _frame(content, where, table)
            done += len(taken)


def _frame(content: str, path: str | Path, table: Table) -> pd.DataFrame:
    """Return the columns of a CSV text by their kinds; path: name of the file for messages."""
    if len(content) >= fast_csv.MIN_CHARACTERS and (frame := _parsed(content, table)) is not None:
        return frame
    heading, *body = rows_of_text(content, path, table.again)
    heading = _present_names(heading, path, table)
    missing = [name for name in table.columns if name not in heading]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: {table.again}")
    found = {}
    for name, column in zip(heading, list(zip(*body, strict=True)) or [()] * len(heading), strict=True):
        kind = table.kind(name)
        if kind is None:
            raise DataError(f"{path} has an unknown column {text_files.quote(name)}: {table.again}")
        try:
            found[name] = column_types.parse_column(column, kind)
        except column_types.CellError as error:
            raise DataError(f"{path}: column {name}, {error}: {table.again}{SAME}") from None
    return pd.DataFrame(found)


def _present_names(heading: Sequence[str], path: str | Path, table: Table) -> list[str]:
    """Return a heading with present names of columns; a former name is read with a warning."""
    for old in table.formerly.keys() & set(heading):
        now = f"the column {old} is now called {table.formerly[old]}, and the former name is read in this version only"
        print(f"profzoo: warning: {path}: {now}: make the file again", file=sys.stderr)
    return [table.formerly.get(name, name) for name in heading]


def _parsed(content: str, table: Table) -> pd.DataFrame | None:
    """Return the table as read by pandas' own parser; None if it may not match the declaration."""
    names = fast_csv.parse_header(content)
    declared = {name: kind for name in names if (kind := table.kind(name)) is not None}
    return fast_csv.parse(content, declared) if set(table.columns) <= set(names) else None


def rows(path: str | Path, again: str = AGAIN, widths: Collection[int] = ()) -> list[list[str]]:
    """Return the fields of each row of a CSV file, the heading first.

    widths: numbers of fields that a row may have instead of the number in the heading.

    Raises:
        DataError: the file cannot be read, is no UTF-8, is cut off, names a column twice, or has rows of other lengths.
    """
    return rows_of_text(text_files.read_text(path, again), path, again, widths)


def rows_of_text(content: str, path: str | Path, again: str = AGAIN, widths: Collection[int] = ()) -> list[list[str]]:
    """Return the fields of each row of a CSV text, as rows does; path: name of the file for messages."""
    if not content:
        raise DataError(f"{path} is empty: {again}")
    if not content.endswith("\n"):
        raise DataError(f"{path} is cut off: its last line is incomplete: {again}")
    try:
        found = list(csv.reader(lines(content), strict=True))
    except csv.Error as error:
        raise DataError(f"{path} is damaged: {error}: {again}") from error
    heading = found[0]
    if len(set(heading)) < len(heading):
        name = next(name for index, name in enumerate(heading) if name in heading[:index])
        raise DataError(f"{path} has two columns {text_files.quote(name)}: {again}")
    for number, row in enumerate(found):
        if len(row) != len(heading) and len(row) not in widths:
            raise DataError(f"{path}: row {number} has {len(row)} fields, but the heading has {len(heading)}: {again}")
    return found


def lines(content: str) -> list[str]:
    """Split a text into lines with their ends; `splitlines` would also split at characters inside fields."""
    *whole, rest = content.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]
