"""Declares the tables across cells, for those who write them and those who read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from profzoo import tools
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io.column_types import Kind
from profzoo.io.columns import Column
from profzoo.io.csv_tables import Table
from profzoo.tables import (
    cell_counters,
    dictionary,
    kernel_table,
    latency,
    layers,
    owner_coverage,
    repetition,
    roofline,
    user_ranges,
)
from profzoo.tools.nsys import ranks as nsys_ranks
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.torch import collective_tables, rank_skew
from profzoo.what_if import tables as replay

FILES = ("../tools/*/activity.py",)
CELL = ["model", "phase"]
QUARTILES = ("step_lower_quartile_ns", "step_upper_quartile_ns")
NUMBER = column_types.or_missing(column_types.NUMBER)
# What a cell was measured with.
VERSION = "_version"
VERSIONS = ("torch_version", "driver_version", "nsys_version", "ncu_version")


def _texts(*names: str) -> dict[str, Kind]:
    return dict.fromkeys([*CELL, *names], column_types.TEXT)


def _numbers(names: Sequence[str], kind: Kind = column_types.NUMBER) -> dict[str, Kind]:
    return dict.fromkeys(names, kind)


def _across(
    table: Table, key: Sequence[str] = (), holds: Callable[[pd.DataFrame], str | None] = lambda table: None
) -> Table:
    """Return the declaration of a table that joins the tables of all cells."""
    return Table(
        columns=_texts() | dict(table.columns),
        optional=table.optional,
        key=[*CELL, *key],
        holds=holds,
        ranges=table.ranges,
        about=table.about,
    )


def _added() -> dict[str, Column]:
    """Return the descriptions of columns that tools add to the table of cells."""
    found = [getattr(activity, "OF_CELL", {}) for activity in tools.activities().values()]
    return {name: column for columns in found for name, column in columns.items()}


def _of_tools(name: str) -> Kind | None:
    """Return the type of a column that a tool adds."""
    return NUMBER


def _compared(name: str) -> Kind | None:
    """Return the type of a column that the table of agreement has per tool."""
    return NUMBER if name.endswith(("_launches", "_gpu_ns", "_spread", "_slowdown")) else None


def _shares_whole(table: pd.DataFrame) -> str | None:
    for cell, rows in table.groupby(CELL, sort=False):
        if wrong := kernel_table.shares_whole(rows):
            return f"{' '.join(cell)}: {wrong}"
    return None


def _traced(table: pd.DataFrame) -> str | None:
    lacking = [name for name in [*STEPS_OF_TRACES, "waiting_ns"] if name not in table]
    return f"there is no column {lacking[0]}" if len(table) and lacking else None


STEP_LEADING = [
    *CELL, "process", "steps", "step_ns", "step_median_ns", "cpu_taken_share", "busy_share", "nsys_busy_share",
]  # fmt: skip
STEPS_OF_TRACES = {name: kind for name, kind in nsys_steps.TABLE.columns.items() if name not in STEP_LEADING}
COVERAGE = ["configurations", "covered", "coverage", "time_coverage", "uneven_time", "other_launches", "extra",
            "other_choice", "missing"]  # fmt: skip
RANK_SHARES = ["waiting_ns", "communication_share", "exposed_share", "overlap_share", "imbalance"]
LAUNCH = ["class", "function", "mangled", "range", "grid_x", "grid_y", "grid_z"]

TABLES: Mapping[str, Table] = {
    "cells": Table(
        columns=_texts("device", "date", "workload", "precision")
        | _numbers(["parameters", "batch"], column_types.or_missing(column_types.COUNT))
        | {"steps": column_types.COUNT}
        | _numbers(["step_ns", "step_median_ns"], column_types.AMOUNT)
        | {
            "items_per_s": column_types.or_missing(column_types.AMOUNT),
            "peak_memory_bytes": column_types.or_missing(column_types.COUNT),
            "peak_rss_bytes": column_types.or_missing(column_types.COUNT),
            "loss": NUMBER,
        },
        # Of a table that an earlier version made there are none, and of clocks only where they were sampled.
        optional=dict.fromkeys(["unsteady", "clocks", "arguments", "imported", *VERSIONS], column_types.TEXT),
        others=_of_tools,
        key=CELL,
        ranges={"step_median_ns": QUARTILES, "step_ns": ("step_low_ns", "step_high_ns")},
        about={**dictionary.CELLS, **_added()},
    ),
    "latency": latency.TABLE,
    "activity": Table(
        columns=_texts("tool", "kind", "range", "name") | _numbers(["launches_per_step", "ns_per_step", "share"]),
        key=[*CELL, "tool", "kind", "range", "name"],
        about=dictionary.ACTIVITY,
    ),
    "kernels": replace(
        kernel_table.TABLE,
        columns=_texts() | dict(kernel_table.TABLE.columns),
        key=[*CELL, *kernel_table.TABLE.key],
        holds=_shares_whole,
    ),
    "ranges": Table(
        columns=_texts("tool", "clock", "range") | _numbers(["ns_per_step", "launches_per_step"], NUMBER),
        # Where a program opened ranges of its own.
        optional={name: user_ranges.TABLE.columns[user_ranges.FORMER.get(name, name)] for name in user_ranges.ADDED},
        holds=user_ranges.find_repeated,
        about={name: one for name, one in dictionary.USER_RANGES.items() if name in user_ranges.ADDED}
        | {**dictionary.RANGES},
    ),
    "steps": Table(
        columns=_texts()
        | _numbers(["process", "steps"], column_types.COUNT)
        | _numbers(["step_ns", "step_median_ns", "busy_share", "nsys_busy_share"], NUMBER),
        # Without a trace it has no others.
        optional=STEPS_OF_TRACES | {"waiting_ns": column_types.NUMBER, "cpu_taken_share": NUMBER},
        key=[*CELL, "process"],
        holds=_traced,
        about={**nsys_steps.TABLE.about, **dictionary.STEPS},
    ),
    "agreement": Table(
        columns=_texts("flag", "cause") | {"step_ns": column_types.AMOUNT},
        others=_compared,
        key=CELL,
        about=dictionary.AGREEMENT,
    ),
    "coverage": Table(
        columns=_texts("set", "missing")
        | _numbers(["configurations", "covered", "extra"], column_types.COUNT)
        | _numbers(["coverage", "time_coverage", "uneven_time", "other_launches"], NUMBER)
        | {"other_choice": column_types.FLAG},
        key=[*CELL, "set"],
        about=dictionary.COVERAGE,
    ),
    "ranks": Table(
        columns=_texts() | dict(nsys_ranks.TABLE.columns) | _numbers(RANK_SHARES, NUMBER),
        key=[*CELL, "rank"],
        about={**nsys_ranks.TABLE.about, **dictionary.RANKS},
    ),
    "collectives": _across(collective_tables.TABLE, collective_tables.KEY),
    "skew": _across(rank_skew.TABLE, rank_skew.KEY),
    "repetition": _across(repetition.TABLE),
    "layers": _across(layers.TABLE, layers.NODE),
    "owners": _across(owner_coverage.TABLE),
    "replay": replace(replay.GAINS, columns=_texts() | dict(replay.GAINS.columns), key=[*CELL, *replay.GAINS.key]),
    "host": _across(replay.TAX, replay.TAX.key, replay.TAX.holds),
    "roofline": Table(
        columns=_texts("level", *LAUNCH[:4], "bound")
        | _numbers(LAUNCH[4:], column_types.or_missing(column_types.COUNT))
        | _numbers([name for name in ("counted_share", *roofline.COLUMNS) if name != "bound"], NUMBER),
        about=dictionary.ROOFLINE,
    ),
    **{name: _across(table, table.key) for name, table in cell_counters.TABLES.items()},
    "peaks": roofline.PEAKS,
}


def read_table(name: str, path: str | Path) -> pd.DataFrame:
    """Read a table across cells by its name; raise DataError if the file does not match the declaration."""
    return reading.read(path, TABLES[name])


def rows_of_cell(table: pd.DataFrame, model: str, phase: str) -> pd.DataFrame:
    """Return the rows of one cell."""
    return table[(table["model"] == model) & (table["phase"] == phase)]
