"""Parses a large CSV with pandas' own parser if the result is certain to equal that of the strict reader.

Pandas is faster than the strict reader (io/csv_tables.py) but accepts more: rows with too few fields, blank lines, text
after a closing quote, and numbers such as ` 5`, `+5`, `.5` or `Infinity`. The bytes of the file are searched for these.
If the file may contain one, nothing is returned, and the strict reader reads the file or names its fault.
"""

import csv
import io
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.column_types import Column, Kind
from profzoo.io.text_files import BEYOND

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
    """Return the names of a CSV's columns; empty if the first line is no complete row.

    >>> parse_header('kernel,"a,b"\\n'), parse_header('"kernel')
    (['kernel', 'a,b'], [])
    """
    try:
        return next(csv.reader([content.partition("\n")[0]], strict=True), [])
    except csv.Error:
        return []


def parse(content: str, kinds_of: Mapping[str, Kind]) -> pd.DataFrame | None:
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
    frame = _parsed(content, names, kinds_of)
    cells = _Cells(outside, len(names))
    # Pandas takes the first column for an index where the first row is too long, and fills rows that are too short.
    if frame is None or list(frame.columns) != names or not isinstance(frame.index, pd.RangeIndex):
        return None
    if not len(frame) or not cells.has_rows(len(frame)):
        return None
    columns: dict[str, Column] = {}
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


def _parsed(content: str, names: Sequence[str], kinds_of: Mapping[str, Kind]) -> pd.DataFrame | None:
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
    return kind.pattern is not None and kind != column_types.FLAG and not kind.mixed


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


def _column(column: pd.Series, kind: Kind, cells: _Cells, place: int) -> Column | None:
    """Return a column as the strict reader would; None if the strict reader may find a fault in it."""
    if kind.pattern is None:
        return column.array
    if not _is_number(kind):
        try:
            return column_types.parse_column(column.tolist(), kind)
        except column_types.CellError:
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
