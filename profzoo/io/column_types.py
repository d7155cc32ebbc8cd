"""Defines kinds of columns: the permitted texts of a field, and the type to which they are converted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from profzoo.io.text_files import BEYOND, quote

Column: TypeAlias = np.ndarray | ExtensionArray


class CellError(ValueError):
    """Fields do not match their column's kind; the message names the row (from 1) and the reason."""


@dataclass(frozen=True)
class Kind:
    """A kind of column.

    pattern: regular expression for its fields; None for text, which may be anything, also `null`, `NA` or empty. whole:
    integers, which must fit into 64 bits. mixed: the column is text if any field is no number.
    """

    name: str
    pattern: str | None = None
    whole: bool = False
    mixed: bool = False


TEXT = Kind("text")
# Numbers as this workflow writes them: no separators, no units, a point.
WHOLE = Kind("whole number", r"-?[0-9]+(\.0+)?", whole=True)
COUNT = Kind("whole number from 0 on", r"[0-9]+(\.0+)?", whole=True)
NUMBER = Kind("number", r"-?([0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|inf)")
AMOUNT = Kind("number from 0 on", r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|inf")
FLAG = Kind("True or False", "True|False")


def or_missing(kind: Kind) -> Kind:
    """Return a kind that also permits an empty field, read as a missing value."""
    return replace(kind, name=f"{kind.name} or nothing", pattern=f"({kind.pattern})?")


# Values that another program counted or named.
MEASURED = replace(or_missing(NUMBER), mixed=True)


def parse_column(cells: Sequence[str], kind: Kind) -> Column:
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
        raise CellError(f"row {wrong + 1} holds {quote(cells[wrong])}, which is no {kind.name}")
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
