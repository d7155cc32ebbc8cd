"""Declares the columns of the baseline's tables, one row per step, written by harness/recorders.py and
experiments/interleaved_runs.py."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.column_types import Kind
from profzoo.io.csv_tables import Table
from profzoo.tools.time import dictionary

# The column of a token's time.
TOKEN = re.compile(r"token_(\d+|x)_ns")


def _in_order(table: pd.DataFrame) -> str | None:
    wrong = sorted(table["step"]) != list(range(len(table)))
    return f"steps are not those from 0 to {len(table) - 1}: rows are missing" if wrong else None


def _each_in_order(table: pd.DataFrame) -> str | None:
    processes = table["process"].unique()
    if sorted(processes) != list(range(len(processes))):
        return f"processes are not those from 0 to {len(processes) - 1}: rows are missing"
    wrong = [(process, why) for process, rows in table.groupby("process") if (why := _in_order(rows))]
    return f"process {wrong[0][0]}: {wrong[0][1]}" if wrong else None


def _of_token(name: str) -> Kind | None:
    """Return the type of the column of a token's time, of steps that generate tokens."""
    return column_types.or_missing(column_types.COUNT) if TOKEN.fullmatch(name) else None


def read_token_times(steps: pd.DataFrame) -> np.ndarray:
    """Return the times of tokens in ns, shape (steps, most tokens of a step); NaN where a step has fewer.

    >>> read_token_times(pd.DataFrame({"step": [0, 1], "token_1_ns": [3, 4], "token_0_ns": [9, 8]})).tolist()
    [[9.0, 3.0], [8.0, 4.0]]
    """
    names = sorted(filter(TOKEN.fullmatch, steps), key=lambda name: int(name.split("_")[1]))
    return steps[names].to_numpy(dtype=float)


TABLE = Table(
    columns={
        "step": column_types.COUNT,
        "wall_ns": column_types.COUNT,
        # Of a GPU alone.
        "gpu_ns": column_types.or_missing(column_types.COUNT),
        "items": column_types.or_missing(column_types.COUNT),
    },
    optional={"peak_memory_bytes": column_types.or_missing(column_types.COUNT)},
    others=_of_token,
    key=["step"],
    holds=_in_order,
    about=dictionary.STEPS,
)
# What memory is held for, as harness/memory_blocks.py tells it apart.
HELD = ("weights", "optimizer", "gradients", "inputs", "activations", "workspace", "other")


def _adds_up(table: pd.DataFrame) -> str | None:
    if list(table["order"]) != list(range(len(table))):
        return f"ranges are not those from 0 to {len(table) - 1}: rows are missing"
    off = table[[f"{held}_bytes" for held in HELD]].sum(axis=1) != table["peak_bytes"]
    return f"row {int(off.argmax()) + 1}: what is held adds up to another peak" if off.any() else None


# A row a range of a step, in their order; what is held is of the moment of the range's peak.
MEMORY = Table(
    columns={"order": column_types.COUNT, "range": column_types.TEXT}
    | dict.fromkeys(["begin_bytes", "peak_bytes", "end_bytes"], column_types.COUNT)
    # On a GPU what was there before may be less than what is known of it, where tensors share memory.
    | {f"{held}_bytes": column_types.WHOLE for held in HELD},
    key=["order"],
    holds=_adds_up,
    about=dictionary.MEMORY,
)
# Of several processes, one after the other; side: of which of what is compared, empty where nothing is.
REPEATED = replace(
    TABLE,
    columns={"side": column_types.TEXT, "process": column_types.COUNT, **TABLE.columns},
    key=["process", "step"],
    holds=_each_in_order,
)
