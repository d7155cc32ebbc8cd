"""Declares the columns of the table of a step's launches, which step_sequence.py makes from a trace."""

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys import dictionary
from profzoo.tools.nsys.configuration_packing import PACKED

# The order of packed configurations of nsys, without registers, because the kernel determines these.
KEYS = ["mangled", *(name for group in PACKED for name, _, _ in group if name not in ("mangled", "registers"))]
COLUMNS = ["id", "step", "kernel", "function", "range", *KEYS, "registers", "ns", "min_ns", "max_ns", "steps"]
TEXTS = ("kernel", "function", "range", "mangled")


def _numbered(table: pd.DataFrame) -> str | None:
    if list(table["id"]) != list(range(len(table))):
        return f"launches are not those from 0 to {len(table) - 1}: rows are missing"
    each = table.groupby("step").size()
    return None if each.nunique() == 1 else "steps do not have as many launches each: rows are missing"


TABLE = Table(
    columns={name: column_types.TEXT if name in TEXTS else column_types.COUNT for name in COLUMNS}
    | dict.fromkeys(["ns", "min_ns", "max_ns"], column_types.AMOUNT),
    key=["id"],
    holds=_numbered,
    ranges={"ns": ("min_ns", "max_ns")},
    about=dictionary.SEQUENCE,
)
