"""Declares the tables of what threads of the host did in a trace, which host_tables.py makes."""

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys import host_dictionary, idle_calls, sample_table, thread_table

TEXTS = (
    "name",
    "left_in",
    "function",
    "module",
    "cuda_call",
    "os_call",
    "cause",
    "kind",
    "file",
    "caller",
    "caller_module",
)
MAYBE = column_types.or_missing(column_types.AMOUNT)
# Relative error of sums that rounding may cause.
ROUNDING = 1e-6


def _kinds(columns: list[str], counts: list[str]) -> dict[str, column_types.Kind]:
    """Return the kind of each column: texts, counts that are always known, and amounts that may be unknown."""
    kinds = dict.fromkeys(columns, MAYBE) | dict.fromkeys(counts, column_types.COUNT)
    return kinds | {name: column_types.TEXT for name in TEXTS if name in columns}


def _adds_up(table: pd.DataFrame) -> str | None:
    known = table.dropna(subset=["running_ns"])
    parts = known["running_ns"] + known["off_ns"] + known["lost_ns"]
    off = (parts - known["wall_ns"]).abs() > 1 + ROUNDING * known["wall_ns"]
    return f"row {int(off.idxmax()) + 1}: running_ns, off_ns and lost_ns are not wall_ns" if off.any() else None


def _within(table: pd.DataFrame) -> str | None:
    over = table["off_ns"] > table["idle_ns"] + 1
    return f"row {int(over.argmax()) + 1}: off_ns is more than idle_ns" if over.any() else None


THREADS = Table(
    columns=_kinds(thread_table.COLUMNS, [*thread_table.WHO, "wall_ns"]) | {"runs_step": column_types.FLAG},
    key=thread_table.WHO,
    holds=_adds_up,
    about=host_dictionary.THREADS,
)
OFF_CPU = Table(
    columns=_kinds(thread_table.OFF_COLUMNS, [*thread_table.WHO, "switches"]),
    key=[*thread_table.WHO, "cuda_call", "os_call"],
    about=host_dictionary.OFF_CPU,
)
SAMPLES = Table(
    columns=_kinds(sample_table.COLUMNS, ["process", "thread", "samples", "stack_samples"]),
    key=["process", "thread", "function", "module"],
    about=host_dictionary.SAMPLES,
)
IDLE = Table(
    columns=_kinds(idle_calls.COLUMNS, ["process", "thread"]),
    key=["process", "cause", "thread", "os_call"],
    holds=_within,
    about=host_dictionary.IDLE,
)
