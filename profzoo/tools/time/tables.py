"""Declares the columns of the baseline's tables, one row per step, written by harness/observers/recorders.py and
experiments/interleaved_runs.py."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from profzoo.io.columns import COUNT, CPU, GPU, TEXT, WHOLE, Column
from profzoo.io.csv_tables import Table

# The column of a token's time.
TOKEN = re.compile(r"token_\d+_ns")


def _in_order(table: pd.DataFrame) -> str | None:
    wrong = sorted(table["step"]) != list(range(len(table)))
    return f"steps are not those from 0 to {len(table) - 1}: rows are missing" if wrong else None


def _each_in_order(table: pd.DataFrame) -> str | None:
    processes = table["process"].unique()
    if sorted(processes) != list(range(len(processes))):
        return f"processes are not those from 0 to {len(processes) - 1}: rows are missing"
    wrong = [(process, why) for process, rows in table.groupby("process") if (why := _in_order(rows))]
    return f"process {wrong[0][0]}: {wrong[0][1]}" if wrong else None


def read_token_times(steps: pd.DataFrame) -> np.ndarray:
    """Return the times of tokens in ns, shape (steps, most tokens of a step); NaN where a step has fewer.

    >>> read_token_times(pd.DataFrame({"step": [0, 1], "token_1_ns": [3, 4], "token_0_ns": [9, 8]})).tolist()
    [[9.0, 3.0], [8.0, 4.0]]
    """
    names = sorted(filter(TOKEN.fullmatch, steps), key=lambda name: int(name.split("_")[1]))
    return steps[names].to_numpy(dtype=float)


TABLE = Table(
    columns={
        "step": Column(COUNT, "Number of the step within the process's window, counted from 0.", tool="time"),
        "wall_ns": Column(COUNT, "Wall time of the step.", "ns", "time", CPU),
        "gpu_ns": Column(COUNT.or_missing, "Time of the step between CUDA events; empty on a CPU.", "ns", "time", GPU),
        "items": Column(COUNT.or_missing, "Samples of the data in the step.", "count", "time"),
    },
    optional={
        "peak_memory_bytes": Column(
            COUNT.or_missing, "Most GPU memory that torch had allocated during the step.", "byte", "time"),
        "own_ns": Column(
            COUNT.or_missing, "Time of the step in which its thread had a core, or `wall_ns` if the thread waited for "
            "something else too; only of processes that are compared on a CPU.", "ns", "time", CPU),
    },
    families={
        "token_*_ns": Column(
            COUNT.or_missing, "Time of a token of the step, counted from 0; the first includes reading the prompt. "
            "Only of models that generate tokens; empty in steps with fewer tokens.", "ns", "time", GPU),
    },
    key=["step"],
    holds=_in_order,
)  # fmt: skip
# What memory is held for, as harness/step/peak_memory.py tells it apart.
HELD = {
    "weights": "parameters and buffers",
    "optimizer": "states of the optimizer and averages of weights (`ema`)",
    "gradients": "gradients of parameters",
    "inputs": "the batch's tensors",
    "activations": "activations that the backward pass needs",
    "workspace": "temporary buffers of operators",
    "other": "other tensors",
}


def _adds_up(table: pd.DataFrame) -> str | None:
    if list(table["order"]) != list(range(len(table))):
        return f"ranges are not those from 0 to {len(table) - 1}: rows are missing"
    parts = [f"{held}_bytes" for held in HELD]
    off = table[parts].sum(axis=1) != table["peak_bytes"]
    if off.any():
        return f"row {int(off.argmax()) + 1}: what is held adds up to another peak"
    of_module = table["module"] != "" if "module" in table else table["order"] < 0
    higher = ~of_module & (table[["begin_bytes", "end_bytes"]].max(axis=1) > table["peak_bytes"])
    if higher.any():
        return f"row {int(higher.argmax()) + 1}: more is held at the beginning or the end than at the peak"
    modules = table[of_module]
    wrong = len(modules) and (modules[parts].sum() != table[parts].iloc[0]).any()
    return "what modules hold adds up to another peak than the step's" if wrong else None


# A row a range of a step, in their order, and then one for each module's part of the whole step; what is held is of the
# moment of the range's peak.
MEMORY = Table(
    columns={
        "order": Column(COUNT, "Place of the row, counted from 0.", tool="time"),
        "range": Column(TEXT, "Part of the step.", tool="time"),
        "begin_bytes": Column(COUNT, "Allocated memory when the range begins.", "byte", "time"),
        "peak_bytes": Column(
            COUNT, "Most allocated memory within the range; of a module, its part at the peak of the step.",
            "byte", "time"),
        "end_bytes": Column(COUNT, "Allocated memory when the range ends.", "byte", "time"),
        **{f"{held}_bytes": Column(WHOLE, f"Part of `peak_bytes` that {what} take.", "byte", "time")
           for held, what in HELD.items()},
    },
    # Files of earlier versions have none of these.
    optional={
        "module": Column(
            TEXT, "Module whose part of the memory the row tells, `(step)` for what belongs to none; empty for all "
            "modules together.", tool="time"),
        "remedy": Column(
            TEXT, "Setting with which the row is expected: its peak is that of the whole step, which then falls in "
            "`range`; empty for what was measured.", tool="time"),
        "unused_bytes": Column(
            COUNT.or_missing, "Memory that the allocator had reserved at the peak and no tensor used; empty on a CPU.",
            "byte", "time"),
    },
    key=["order"],
    holds=_adds_up,
)  # fmt: skip
# Of several processes, one after the other; side: of which of what is compared, empty where nothing is.
REPEATED = replace(
    TABLE,
    columns={
        "side": Column(
            TEXT, "Side of the comparison, or settings of the trial, that the process ran; empty for the cell as it "
            "is."),
        "process": Column(COUNT, "Number of the process, counted from 0 in the order in which they ran."),
        **TABLE.columns,
    },
    key=["process", "step"],
    holds=_each_in_order,
)  # fmt: skip
