"""Writes a declared table as Parquet, Arrow or JSON, with the unit and meaning of each column inside the file."""

import importlib.util
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pandas as pd

from profzoo.errors import ConfigError
from profzoo.io.columns import Column, Kind
from profzoo.io.csv_tables import Table

if TYPE_CHECKING:
    import pyarrow

# Rows that are turned into JSON at once.
ROWS = 10_000
# Arrow's types of fields by those of JSON Table Schema (https://specs.frictionlessdata.io/table-schema), which pandas
# reads and writes with orient="table".
TYPES = {"string": "string", "boolean": "bool", "integer": "int64", "number": "float64"}


@dataclass(frozen=True)
class Field:
    """A column of a table: its name, its type (a key of TYPES), whether values are missing, and what it means."""

    name: str
    type: str
    missing: bool
    about: Column | None

    def describe(self) -> dict[str, str]:
        """Return unit, meaning, tool and clock of the column, as far as they are known."""
        words = asdict(self.about) if self.about else {}
        return {key: text for key, text in words.items() if text and key != "kind"}


def list_fields(frame: pd.DataFrame, table: Table | None) -> list[Field]:
    """Return the fields of a table as profzoo.io.csv_tables reads it; table: its declaration, None if it has none.

    Types come from the declaration and not from the rows, so that files of the same kind can be read as one table.
    """
    found = []
    for name, column in frame.items():
        kind = table.kind(str(name)) if table else None
        missing = bool(column.isna().any())
        found.append(Field(str(name), _type_of(column, kind), missing, table.describe(str(name)) if table else None))
    return found


def _type_of(column: pd.Series, kind: Kind | None) -> str:
    """Return the type of a column: that of its kind, or that of its values if it has no kind or may be text too."""
    if pd.api.types.is_bool_dtype(column):
        return "boolean"
    if not pd.api.types.is_numeric_dtype(column):
        return "string"
    whole = kind.whole if kind else pd.api.types.is_integer_dtype(column)
    return "integer" if whole else "number"


def _write_json(frame: pd.DataFrame, fields: list[Field], about: Mapping[str, str], path: Path) -> None:
    """Write a JSON Table Schema document, one row per line; `pandas.read_json(path, orient="table")` reads it."""
    described = []
    for field in fields:
        words = {{"means": "description"}.get(key, key): text for key, text in field.describe().items()}
        # The type with which pandas reads integers of which some are missing.
        nullable = {"extDtype": "Int64"} if field.type == "integer" and field.missing else {}
        described.append({"name": field.name, "type": field.type, **nullable, **words})
    with path.open("w", encoding="utf-8") as file:
        heading = {**about, "fields": described, "pandas_version": "1.4.0"}
        file.write(f'{{"schema": {json.dumps(heading, ensure_ascii=False)},\n"data": [')
        for start in range(0, len(frame), ROWS):
            _write_rows(frame.iloc[start : start + ROWS], fields, file, first=start == 0)
        file.write("\n]}\n")


def _write_rows(frame: pd.DataFrame, fields: list[Field], file: TextIO, first: bool) -> None:
    columns = [
        [_to_json(value, field) for value in frame.iloc[:, place].tolist()] for place, field in enumerate(fields)
    ]
    names = [field.name for field in fields]
    rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False) for row in rows)
    for number, line in enumerate(lines):
        file.write(f"{'' if first and number == 0 else ','}\n{line}")


def _to_json(value: Any, field: Field) -> Any:
    """Return a value as JSON has it. JSON has no infinite numbers; Table Schema spells them INF and -INF.

    >>> [_to_json(value, Field("ns", "integer", True, None)) for value in (2.0, float("nan"))]
    [2, None]
    """
    if field.type in ("integer", "number") and pd.isna(value):
        return None
    if field.type == "integer":
        return int(value)
    if field.type == "number" and math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return value


def _make_arrow_table(frame: pd.DataFrame, fields: list[Field], about: Mapping[str, str]) -> "pyarrow.Table":
    """Return an Arrow table whose fields have their unit and meaning, and whose schema says what a row is."""
    import pyarrow

    arrays, found = [], []
    for place, field in enumerate(fields):
        type_ = pyarrow.type_for_alias(TYPES[field.type])
        arrays.append(pyarrow.array(frame.iloc[:, place].to_numpy(), type=type_, from_pandas=True))
        found.append(pyarrow.field(field.name, type_, metadata=field.describe() or None))
    return pyarrow.table(arrays, schema=pyarrow.schema(found, metadata=dict(about) or None))


def _write_parquet(frame: pd.DataFrame, fields: list[Field], about: Mapping[str, str], path: Path) -> None:
    """Write a Parquet file, compressed by Zstandard."""
    from pyarrow import parquet

    parquet.write_table(_make_arrow_table(frame, fields, about), path, compression="zstd")


def _write_arrow(frame: pd.DataFrame, fields: list[Field], about: Mapping[str, str], path: Path) -> None:
    """Write an Arrow IPC file (also called Feather version 2), without compression, so that it can be memory-mapped."""
    from pyarrow import ipc

    table = _make_arrow_table(frame, fields, about)
    with ipc.new_file(path, table.schema) as file:
        file.write_table(table)


_WRITERS: Mapping[str, Callable[[pd.DataFrame, list[Field], Mapping[str, str], Path], None]] = {
    "parquet": _write_parquet,
    "arrow": _write_arrow,
    "json": _write_json,
}
# The formats, which are also the ends of the files' names.
FORMATS = tuple(_WRITERS)
# The packages besides profzoo's own that formats need.
PACKAGES = {"parquet": "pyarrow", "arrow": "pyarrow"}


def check_formats(formats: Iterable[str]) -> None:
    """Check that the packages for these formats are installed.

    Raises:
        ConfigError: one is not; the message names it.
    """
    for format_ in formats:
        package = PACKAGES.get(format_)
        if package and importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"the format {format_} needs the package {package}, which is not installed: "
                f"`python -m pip install {package}`, or take export=json"
            )


def write_table(frame: pd.DataFrame, table: Table | None, about: Mapping[str, str], path: Path, format_: str) -> None:
    """Write a table in one of FORMATS; empty fields become null.

    frame: the rows as profzoo.io.csv_tables reads them. table: its declaration; None if it has none. about: what the
    whole table holds, as texts by name.

    Raises:
        ConfigError: the package for the format is not installed.
    """
    check_formats([format_])
    _WRITERS[format_](frame, list_fields(frame, table), about, path)
