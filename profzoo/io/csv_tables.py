"""Reads CSV files by their declarations: names and kinds of columns, and conditions on rows."""

import csv
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profzoo.errors import DataError
from profzoo.io import text_files
from profzoo.io.columns import FLAG, Column, Kind, find_family, with_article
from profzoo.io.text_files import BEYOND, SAME, quote

# Converts the fields of a column to the type of its kind.

Values: TypeAlias = np.ndarray | ExtensionArray


class CellError(ValueError):
    """Fields do not match their column's kind; the message names the row (from 1) and the reason."""


def parse_column(cells: Sequence[str], kind: Kind) -> Values:
    """Convert a column to its type.

    Text stays unchanged, flags become bool, and numbers become int64 if all are present integers, otherwise float64.

    Raises:
        CellError: a field does not match the kind.
    """
    if kind.pattern is None:
        return pd.array(cells, dtype="str")
    wrong = _first_other(cells, kind.pattern)
    if wrong is not None and kind.mixed:
        return pd.array(cells, dtype="str")
    if wrong is not None:
        raise CellError(f"row {wrong + 1} holds {quote(cells[wrong])}, which is not {with_article(kind.name)}")
    if kind == FLAG:
        return np.array([cell == "True" for cell in cells], dtype=np.bool_)
    numbers = _numbers(cells)
    if kind.whole and (beyond := (numbers >= BEYOND) | (numbers <= -BEYOND)).any():
        row = int(beyond.argmax())
        raise CellError(f"row {row + 1} holds {quote(cells[row])}, which is beyond what is counted here")
    return numbers


def _numbers(cells: Sequence[str]) -> np.ndarray:
    # Python converts each to the nearest float; pandas' own parsers do not.
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array([float(cell or "nan") for cell in cells], dtype=np.float64)


def _first_other(cells: Sequence[str], pattern: str) -> int | None:
    """Return the index of the first field that does not match, or None."""
    # All in one, as a table may hold millions; a line break is in no number.
    together = "\n".join([*cells, ""])
    if together.count("\n") == len(cells) and re.fullmatch(f"(?:(?:{pattern})\n)*+", together):
        return None
    one = re.compile(pattern)
    return next((row for row, cell in enumerate(cells) if not one.fullmatch(cell)), None)


# Parses a large CSV with pandas' own parser if the result is certain to equal that of the strict reader.
#
# Pandas is faster than the strict reader (io/csv_tables.py) but accepts more: rows with too few fields, blank lines,
# text after a closing quote, and numbers such as ` 5`, `+5`, `.5` or `Infinity`. The bytes of the file are searched for
# these. If the file may contain one, nothing is returned, and the strict reader reads the file or names its fault.

# The strict reader is faster on shorter texts, because each call of pandas' parser takes a millisecond or two.
MIN_CHARACTERS = 50_000
# Pandas 3.0 reads a number to the nearest float only when asked; later versions always do, and warn when asked.
_PRECISION = {"float_precision": "round_trip"} if pd.__version__.startswith("3.0.") else {}
# The first and last characters of the text between two quoted cells: nothing between two quotes stands for one quote.
_EDGES = {"", ",,", ",\n", "\n,", "\n\n"}
# What pandas reads as a number, or as a sign, and a kind does not allow: not within a quoted cell.
_ODD = (b"-.", b".e", b".E")
_DIGITS, _MINUS = range(ord("0"), ord("9") + 1), ord("-")
_COMMA, _LINE_END, _POINT = ord(","), ord("\n"), ord(".")
# Small letters differ from capital ones by this bit.
_CASE, _EXPONENT = 0x20, ord("e")


def parse_header(content: str) -> list[str]:
    """Return the names of a CSV's columns; empty if the first line is not a complete row.

    >>> parse_header('kernel,"a,b"\\n'), parse_header('"kernel')
    (['kernel', 'a,b'], [])
    """
    try:
        return next(csv.reader([content.partition("\n")[0]], strict=True), [])
    except csv.Error:
        return []


def parse_fast(content: str, kinds_of: Mapping[str, Kind]) -> pd.DataFrame | None:
    """Return the columns of a CSV by their kinds, as the strict reader would; None if that is not certain.

    content: text of the file. kinds_of: kind of each column that the file may have.
    """
    if not content.endswith("\n") or "\r" in content or "\0" in content or "\n\n" in content:
        return None
    outside = _outside(content)
    if outside is None or any(odd in outside for odd in _ODD):
        return None
    names = parse_header(content)
    if not names or not set(names) <= set(kinds_of) or len(set(names)) < len(names):
        return None
    frame = _parsed_fast(content, names, kinds_of)
    cells = _Cells(outside, len(names))
    # Pandas takes the first column for an index where the first row is too long, and fills rows that are too short.
    if frame is None or list(frame.columns) != names or not isinstance(frame.index, pd.RangeIndex):
        return None
    if not len(frame) or not cells.has_rows(len(frame)):
        return None
    columns: dict[str, Values] = {}
    for place, name in enumerate(names):
        column = _column(frame[name], kinds_of[name], cells, place)
        if column is None:
            return None
        columns[name] = column
    return pd.DataFrame(columns)


def _outside(content: str) -> bytes | None:
    """Return the text outside of quotes; None if a quote does not enclose a whole field."""
    if '"' not in content:
        return content.encode()
    parts = content.split('"')
    between = parts[2:-1:2]
    edges = {part[:1] + part[-1:] for part in between} | {part[:1] * 2 for part in parts[-1:]}
    edges |= {part[-1:] * 2 for part in parts[:1]}
    return "".join(parts[::2]).encode() if len(parts) % 2 and edges <= _EDGES else None


def _parsed_fast(content: str, names: Sequence[str], kinds_of: Mapping[str, Kind]) -> pd.DataFrame | None:
    numbers = [name for name in names if _is_number(kinds_of[name])]
    texts = dict.fromkeys([name for name in names if name not in numbers], "str")
    missing = {name: [""] for name in numbers}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return pd.read_csv(io.StringIO(content), dtype=texts, keep_default_na=False, na_values=missing,
                               skip_blank_lines=False, low_memory=False, **_PRECISION)  # fmt: skip
    except (ValueError, OverflowError, Warning):
        return None


def _is_number(kind: Kind) -> bool:
    return kind.pattern is not None and kind != FLAG and not kind.mixed


class _Cells:
    """Begin and end of each unquoted field, by row and column; a quoted field appears as an empty one."""

    def __init__(self, outside: bytes, width: int) -> None:
        # The heading begins where a line before it would end.
        self.bytes = np.frombuffer(b"\n" + outside, dtype=np.uint8)
        self.ends = np.flatnonzero((self.bytes == _COMMA) | (self.bytes == _LINE_END))
        self.width = width

    def has_rows(self, rows: int) -> bool:
        """Return whether the text has `rows` rows besides the heading, none of them longer than the heading."""
        return len(self.ends) - 1 == (rows + 1) * self.width

    def separators(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the separators before and after each field of a column, without the heading."""
        start = self.width + place
        return self.ends[start : -1 : self.width], self.ends[start + 1 :: self.width]


def _column(column: pd.Series, kind: Kind, cells: _Cells, place: int) -> Values | None:
    """Return a column as the strict reader would; None if the strict reader may find a fault in it."""
    if kind.pattern is None:
        return column.array
    if not _is_number(kind):
        try:
            return parse_column(column.tolist(), kind)
        except CellError:
            return None
    numbers = column.to_numpy()
    return numbers if numbers.dtype in (np.int64, np.float64) and _certain(numbers, kind, cells, place) else None


def _certain(numbers: np.ndarray, kind: Kind, cells: _Cells, place: int) -> bool:
    """Return whether all fields match the kind; pandas has found them to be numbers, or empty."""
    assert kind.pattern is not None
    before, behind = cells.separators(place)
    there = behind - before > 1
    empty = len(there) - int(there.sum())
    # A quoted number is as an empty one here.
    if empty != int(np.isnan(numbers).sum()) or (empty and not re.fullmatch(kind.pattern, "")):
        return False
    if not there.any():
        return True
    before, behind, numbers = before[there], behind[there], numbers[there]
    signs = {_MINUS} if re.fullmatch(kind.pattern, "-1") else set()
    first, last = (set(np.unique(cells.bytes[at]).tolist()) for at in (before + 1, behind - 1))
    if not first <= {*_DIGITS, *signs} or not last <= {*_DIGITS}:
        return False
    if signs and not set(np.unique(cells.bytes[before[cells.bytes[before + 1] == _MINUS] + 2]).tolist()) <= {*_DIGITS}:
        return False
    if not kind.whole:
        return True
    if (np.abs(numbers) >= BEYOND).any():
        return False
    return numbers.dtype == np.int64 or _whole(before, behind, cells)


def _whole(before: np.ndarray, behind: np.ndarray, cells: _Cells) -> bool:
    """Return whether these numbers are written as integers: `5` or `5.0`, but not `5.1` or `1e5`."""
    fractions = np.flatnonzero((cells.bytes == _POINT) | (cells.bytes | _CASE == _EXPONENT))
    found = np.searchsorted(before, fractions, side="right") - 1
    inside = (found >= 0) & (fractions < behind[found])
    at, ends = fractions[inside], behind[found[inside]]
    return bool(((cells.bytes[at] == _POINT) & (ends - at == 2) & (cells.bytes[ends - 1] == ord("0"))).all())


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
        columns, optional: required and optional columns, by name.
        families: further columns that the file may have, by name or by a pattern with `*`.
        others: kind of columns that are not declared; None if the file must not have any.
        key: columns whose values identify a row.
        holds: function that returns what is wrong with the rows, or None.
        again: advice for a damaged file.
        ranges: lower and upper bound of a column, if their names do not show this.
    """

    columns: Mapping[str, Column]
    optional: Mapping[str, Column] = field(default_factory=dict)
    families: Mapping[str, Column] = field(default_factory=dict)
    others: Kind | None = None
    key: Sequence[str] = ()
    holds: Callable[[pd.DataFrame], str | None] = _nothing
    again: str = AGAIN
    ranges: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def describe(self, name: str) -> Column | None:
        """Return the declaration of a column; None if there is none."""
        return self.columns.get(name) or self.optional.get(name) or find_family(name, self.families)

    def kind(self, name: str) -> Kind | None:
        """Return the kind of a column; None for a column that the table must not have."""
        column = self.describe(name)
        return column.kind if column else self.others

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        return pd.DataFrame({name: parse_column([], one.kind) for name, one in self.columns.items()})


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
    if len(content) >= MIN_CHARACTERS and (frame := _parsed(content, table)) is not None:
        return frame
    heading, *body = rows_of_text(content, path, table.again)
    missing = [name for name in table.columns if name not in heading]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: {table.again}")
    found = {}
    for name, column in zip(heading, list(zip(*body, strict=True)) or [()] * len(heading), strict=True):
        kind = table.kind(name)
        if kind is None:
            raise DataError(f"{path} has an unknown column {text_files.quote(name)}: {table.again}")
        try:
            found[name] = parse_column(column, kind)
        except CellError as error:
            raise DataError(f"{path}: column {name}, {error}: {table.again}{SAME}") from None
    return pd.DataFrame(found)


def _parsed(content: str, table: Table) -> pd.DataFrame | None:
    """Return the table as read by pandas' own parser; None if it may not match the declaration."""
    names = parse_header(content)
    declared = {name: kind for name in names if (kind := table.kind(name)) is not None}
    return parse_fast(content, declared) if set(table.columns) <= set(names) else None


def rows(path: str | Path, again: str = AGAIN) -> list[list[str]]:
    """Return the fields of each row of a CSV file, the heading first.

    Raises:
        DataError: the file cannot be read, is not UTF-8, is cut off, names a column twice, or has rows of other
            lengths.
    """
    return rows_of_text(text_files.read_text(path, again), path, again)


def rows_of_text(content: str, path: str | Path, again: str = AGAIN, widths: Collection[int] = ()) -> list[list[str]]:
    """Return the fields of each row of a CSV text, as rows does; path: name of the file for messages.

    widths: numbers of fields that a row may have instead of the number in the heading.
    """
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
