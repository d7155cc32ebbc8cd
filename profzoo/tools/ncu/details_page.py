"""Reads ncu's details page, which holds metrics and the advice of ncu's rules."""

from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import column_types, text_files
from profzoo.io import csv_tables as reading
from profzoo.tools.ncu import number_parsing as ncu_values
from profzoo.tools.ncu.raw_page import NOISE, ODD

SPEEDUP = "Estimated Speedup"
LAUNCH = ["ID", "Kernel Name", "Section Name"]
ADVICE = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", SPEEDUP]
# The last column of rows about metrics, which end with one empty cell more.
METRIC = "Metric Value"


def read_details(path: str | Path) -> pd.DataFrame:
    """Return one row per metric or piece of advice; columns are text, except ID (integer) and SPEEDUP (percent).

    A page of a report without rules has no column of advice.

    Raises:
        DataError: it is damaged, or a speed-up is no number.
    """
    frame = read_texts(path)
    advised = [name for name in ADVICE if name in frame]
    missing = [name for name in [*LAUNCH, METRIC, *(ADVICE if advised else [])] if name not in frame]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: {ODD}")
    try:
        frame["ID"] = column_types.parse_column(list(frame["ID"]), column_types.COUNT)
        if advised:
            frame[SPEEDUP] = _percent(frame[SPEEDUP])
    except (column_types.CellError, ncu_values.ValueFormatError) as error:
        column = SPEEDUP if isinstance(error, ncu_values.ValueFormatError) else "ID,"
        raise DataError(f"{path}: column {column} {error}: {ODD}") from None
    return frame


def read_texts(path: str | Path) -> pd.DataFrame:
    """Return the rows of a details page as texts; cells that a row lacks at its end are empty.

    Raises:
        DataError: it is damaged.
    """
    content = text_files.read_text(path, reading.AGAIN)
    # ncu mixes lines such as ==WARNING== into its output.
    printed = "".join(line for line in reading.lines(content) if not NOISE.match(line))
    heading, *body = reading.rows_of_text(printed, path, widths=[_short(printed)])
    full = [row + [""] * (len(heading) - len(row)) for row in body]
    return pd.DataFrame({name: [row[at] for row in full] for at, name in enumerate(heading)}, dtype="str")


def _short(printed: str) -> int:
    """Return the number of fields in rows about metrics."""
    heading = printed.partition("\n")[0].replace('"', "").rstrip("\r").split(",")
    return heading.index(METRIC) + 2 if METRIC in heading else len(heading)


def _percent(column: pd.Series) -> pd.Series:
    """Convert estimated speedups to numbers; ncu prints values from 1,000 up with separators."""
    text, _ = ncu_values.normalize_column(SPEEDUP, column, "%")
    return ncu_values.parse_numbers(text).astype("float64")
