"""Estimates and declares percentiles of step times: how long most steps take, and how long the slowest ones."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.statistics import percentiles
from profzoo.tables import dictionary

# Those that are named on the page come first; the others show the shape between them.
NAMED = (50.0, 90.0, 95.0, 99.0)
PERCENTS = tuple(sorted({*NAMED, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 70.0, 80.0, 99.9}))
STEP, FIRST_TOKEN, TOKEN = "step", "first token", "token"
CELL = ["model", "phase"]
KEY = [*CELL, "of", "percentile"]
TIMES = ["ns", "low_ns", "high_ns"]
COLUMNS = [*KEY, *TIMES, "steps", "processes", "independent_steps", "needed_steps"]
KNOWN = column_types.or_missing(column_types.AMOUNT)


def find_contradiction(table: pd.DataFrame) -> str | None:
    """Return what is wrong with the rows of a table, or None."""
    stated = table["ns"].notna()
    for name in ("low_ns", "high_ns"):
        if (table[name].notna() != stated).any():
            return "a percentile has no interval, or an interval no percentile"
    if (stated != (table["needed_steps"] == 0)).any():
        return "a percentile that is known needs further steps, or one that is not needs none"
    return None


TABLE = Table(
    columns={**dict.fromkeys([*CELL, "of"], column_types.TEXT), "percentile": column_types.AMOUNT}
    | dict.fromkeys(TIMES, KNOWN)
    | dict.fromkeys(["steps", "processes", "needed_steps"], column_types.COUNT)
    | {"independent_steps": column_types.AMOUNT},
    key=KEY,
    holds=find_contradiction,
    ranges={"ns": ("low_ns", "high_ns")},
    about=dictionary.LATENCY,
)


def list_percentiles(processes: Sequence[np.ndarray], of: str = STEP) -> pd.DataFrame:
    """Return one row per percentile of PERCENTS.

    processes: times in ns, one array per process. of: what they are times of.
    """
    found = [asdict(percentiles.estimate_percentile(processes, percent)) for percent in PERCENTS]
    table = pd.DataFrame(found).rename(columns={"percent": "percentile"})
    return table.assign(of=of, steps=sum(map(len, processes)), processes=len(processes))
