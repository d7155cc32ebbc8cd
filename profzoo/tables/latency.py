"""Estimates and declares percentiles of step times: how long most steps take, and how long the slowest ones."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from profzoo.io.columns import AMOUNT, COUNT, GPU, TEXT, Column
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.statistics import percentiles

# Those that are named on the page come first; the others show the shape between them.
NAMED = (50.0, 90.0, 95.0, 99.0)
PERCENTS = tuple(sorted({*NAMED, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 70.0, 80.0, 99.9}))
STEP, FIRST_TOKEN, TOKEN = "step", "first token", "token"
CELL = ["model", "phase"]
KEY = [*CELL, "of", "percentile"]
TIMES = ["ns", "low_ns", "high_ns"]
COLUMNS = [*KEY, *TIMES, "confidence", "steps", "processes", "independent_steps", "needed_steps"]


def find_contradiction(table: pd.DataFrame) -> str | None:
    """Return what is wrong with the rows of a table, or None."""
    stated = table["ns"].notna()
    for name in ("low_ns", "high_ns", "confidence"):
        if (table[name].notna() != stated).any():
            return "a percentile has no interval, or an interval no percentile"
    if (stated != (table["needed_steps"] == 0)).any():
        return "a percentile that is known needs further steps, or one that is not needs none"
    return None


TABLE = Table(
    columns={
        **shared("model", "phase"),
        "of": Column(
            TEXT, "What is timed: the `step`; of models that generate, also the `first token` of a step and each "
            "further `token`."),
        "percentile": Column(
            AMOUNT, "Part of the steps or tokens that take at most so long: 99 of 100 at the 99th.", "%"),
        "ns": Column(
            AMOUNT.or_missing, "The percentile of their time without any profiler, of several processes that of the "
            "median process; empty if there are too few for an interval.", "ns", "time", GPU),
        "low_ns": Column(
            AMOUNT.or_missing, "Lower end of the interval of `ns`, which assumes no distribution.", "ns", "time", GPU),
        "high_ns": Column(AMOUNT.or_missing, "Upper end of the interval of `ns`.", "ns", "time", GPU),
        "confidence": Column(
            AMOUNT.or_missing, "How often such an interval holds: of one process for this process alone; of several "
            "for the median process, 0.75 with three and 0.95 or more with six.", "fraction"),
        "steps": Column(COUNT, "Settled steps of all processes, or tokens of these.", "count", "time"),
        "processes": Column(
            COUNT, "Processes that were measured. The interval of a single one says nothing about other processes.",
            "count"),
        "needed_steps": Column(
            COUNT, "Estimate of the steps or tokens that an interval needs, if further ones are as alike; 0 where "
            "there is one.", "count", "time"),
        "independent_steps": Column(
            AMOUNT, "How many independent values these are worth: of several processes, their number; of the steps "
            "of one, by how alike they are.", "count", "time"),
    },
    key=KEY,
    holds=find_contradiction,
    ranges={"ns": ("low_ns", "high_ns")},
)  # fmt: skip


def list_percentiles(processes: Sequence[np.ndarray], of: str = STEP) -> pd.DataFrame:
    """Return one row per percentile of PERCENTS.

    processes: times in ns, one array per process. of: what they are times of.
    """
    found = [asdict(percentiles.estimate_percentile(processes, percent)) for percent in PERCENTS]
    table = pd.DataFrame(found).rename(columns={"percent": "percentile"})
    return table.assign(of=of, steps=sum(map(len, processes)), processes=len(processes))
