"""Declares the columns of exported ncu tables and checks the census of all launches."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io.column_types import Kind
from profzoo.io.csv_tables import Table
from profzoo.tools.ncu import dictionary
from profzoo.tools.ncu.census import OF_NSYS
from profzoo.tools.ncu.derived_metrics import GPU_TIME, NUMBERS
from profzoo.tools.ncu.raw_page import CONFIGURATION, LEADING, SHARED_MEMORY, count_configurations
from profzoo.tools.nsys import step_schema

TEXTS = ("kernel", "mangled", "function", "range")


def _metric(name: str) -> Kind:
    return column_types.or_missing(column_types.NUMBER) if name in NUMBERS else column_types.MEASURED


TABLE = Table(
    columns={name: column_types.TEXT if name in TEXTS else column_types.COUNT for name in LEADING}
    # Shared memory is a metric; launches of what the census lacks are not known.
    | dict.fromkeys([*SHARED_MEMORY, "launches"], column_types.or_missing(column_types.COUNT)),
    # What the launches of a set stand for; time_ratio was of tables without multiplicities.
    optional=dict.fromkeys(["multiplicity", "time_spread", "time_ratio"], column_types.or_missing(column_types.NUMBER))
    | dict.fromkeys(["run", "launch", "stratum"], column_types.or_missing(column_types.COUNT))
    | {"as_planned": column_types.FLAG},
    others=_metric,
    key=["id"],
    about=dictionary.LAUNCHES,
    formerly={"weight": "multiplicity"},
)


def _every(table: pd.DataFrame) -> str | None:
    """What is wrong with a census that lacks launches, which each say how many there are of their configuration."""
    # ncu counts launches from 0 on.
    if sorted(table["id"]) != list(range(len(table))):
        return f"launches are not those from 0 to {len(table) - 1}: rows are missing"
    counts = count_configurations(table).reindex(pd.MultiIndex.from_frame(table[CONFIGURATION])).to_numpy()
    lacking = table["launches"].to_numpy() != counts
    if lacking.any():
        row = table.iloc[int(lacking.argmax())]
        return f"of launch {row['id']} there are not {row['launches']:.0f} alike: rows are missing"
    return None


CENSUS = replace(
    TABLE, columns={**TABLE.columns, GPU_TIME: column_types.AMOUNT, "launches": column_types.COUNT}, holds=_every
)


def read_census(path: str | Path) -> pd.DataFrame:
    """Read all launches of a cell's window, in order: counted by ncu, or traced by nsys with their durations.

    Raises:
        DataError: as of reading.read, and where launches are missing.
    """
    if not is_nsys_census(path):
        return reading.read(path, CENSUS).sort_values("id", kind="stable", ignore_index=True)
    table = reading.read(path, step_schema.TABLE).rename(columns={"ns": GPU_TIME})
    counts = count_configurations(table).reindex(pd.MultiIndex.from_frame(table[CONFIGURATION]))
    return table.assign(launches=counts.to_numpy())


def is_nsys_census(path: str | Path) -> bool:
    """Return whether nsys traced the launches of a census."""
    return str(path).endswith(OF_NSYS)
