"""Reads CSV by what is declared of it: names and kinds of columns, and what holds of its rows."""

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
# Names, shapes and stacks may be long; Python would refuse more than 128 KiB.
csv.field_size_limit(2**31 - 1)


def _nothing(given: object) -> None:
    return


@dataclass(frozen=True)
class Table:
    """The declaration of a CSV, for those who write it and those who read it.

    Fields:
        columns, optional: types of the columns that must and that may be there. others: type of a further column by
            its name, None for a column that the table must not have.
        key: columns in which no two rows agree. holds: what is wrong with the rows in words, None for nothing.
        again: what to do about a damaged file.
        ranges: by number, the two columns between which it lies, where their names do not tell (io/number_intervals).
        about: meaning of columns, by name or by a pattern of names, where io/common_columns has none or another holds.
        formerly: present names of columns by the names that they had in the version before, which are still read.
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
        """The kind of a column; None for one that the table may not have."""
        return self.columns.get(name) or self.optional.get(name) or self.others(name)

    def describe(self, name: str) -> Column | None:
        """Return what a column means; None for one that neither the table nor the shared dictionary describes."""
        return columns.find(name, self.about, COMMON)

    def empty(self) -> pd.DataFrame:
        """The table without rows."""
        return pd.DataFrame({name: column_types.parse_column([], kind) for name, kind in self.columns.items()})


def read(path: str | Path, table: Table) -> pd.DataFrame:
    """The rows of a CSV, columns in the order of the file.

    Text is what the file holds, also where that is `null`, `NA` or nothing; only numbers may be missing.

    Raises:
        DataError: it cannot be read, is cut off, or is not what is declared.
    """
    frame = _frame(text_files.read_text(path, table.again), path, table)
    twice = frame.duplicated([*table.key]) if table.key else frame.index == -1
    if twice.any():
        raise DataError(f"{path}: row {int(twice.argmax()) + 1} occurs twice: {table.again}{SAME}")
    if wrong := table.holds(frame):
        raise DataError(f"{path}: {wrong}: {table.again}{SAME}")
    return frame


def parts(path: str | Path, table: Table, count: int = 50_000) -> Iterator[pd.DataFrame]:
    """The rows of a CSV that may have more than fit into memory, so many at a time.

    What holds of all of them together, such as the key, is not looked at.

    Raises:
        DataError: as read.
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
    """The columns of a text by their kinds; path: that errors name."""
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
    """The same by pandas' own parser; None where it is not certain that the table is as declared."""
    names = fast_csv.parse_header(content)
    declared = {name: kind for name in names if (kind := table.kind(name)) is not None}
    return fast_csv.parse(content, declared) if set(table.columns) <= set(names) else None


def rows(path: str | Path, again: str = AGAIN, widths: Collection[int] = ()) -> list[list[str]]:
    """The cells of each row of a CSV, the heading first.

    widths: how many cells a row may have besides as many as the heading.

    Raises:
        DataError: it cannot be read, is no UTF-8, is cut off, names a column twice, or has rows of another length.
    """
    return rows_of_text(text_files.read_text(path, again), path, again, widths)


def rows_of_text(content: str, path: str | Path, again: str = AGAIN, widths: Collection[int] = ()) -> list[list[str]]:
    """As rows, of a text; path: that errors name."""
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
    """Lines with their ends, as files have them; `splitlines` would also split at what is part of a cell."""
    *whole, rest = content.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]
