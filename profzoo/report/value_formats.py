"""Formats of the report's values: the columns of its tables, and a dash for missing values."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import pandas as pd
from markupsafe import Markup, escape

from profzoo.formatting import duration

MISSING_TEXT = "–"
Formatter = Callable[[Any], str]
# Heading of each column of plain values, its name in the table, and its format.
CELL_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "samples/s": ("items_per_s", "{:,.1f}".format),
    "GPU busy": ("busy_share", "{:.0%}".format),
    "gain": ("gain", "{:.2f}×".format),
    "batch": ("batch", "{:,.0f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "median": ("step_median_ns", duration),
    "launches": ("launches", "{:,.0f}".format),
    "peak GPU memory": ("peak_memory_bytes", lambda value: f"{value / 2**20:,.0f} MiB"),
    "loss": ("loss", "{:.4f}".format),
}
# Columns that are visible by default.
DEFAULT_COLUMNS = ("samples/s", "GPU busy")
# Columns of the table of a cell's processes, one row per process.
PROCESS_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "host": ("host", str),
    "rank": ("rank", "{:.0f}".format),
    "step under nsys": ("wall_ns", duration),
    "computing": ("compute_ns", duration),
    "communicating": ("communication_ns", duration),
    "waiting for other processes": ("waiting_ns", duration),
    "overlapped by computing": ("overlap_share", "{:.0%}".format),
    "imbalance": ("imbalance", "{:+.1%}".format),
}


def choose_agreement_format(column: str) -> Formatter:
    """Return the format of a column of the agreement table, by the end of its name."""
    if column.endswith("_ns"):
        return duration
    if column.endswith("_spread"):
        return "{:.1%}".format
    if column.endswith("_slowdown"):
        return "{:.2f}×".format
    return "{:,.1f}".format if column.endswith("_launches") else str


def is_cpu_device(device: Any) -> bool:
    """Whether a cell's device is a CPU.

    >>> is_cpu_device("CPU, 2 threads"), is_cpu_device("NVIDIA H200")
    (True, False)
    """
    return isinstance(device, str) and device.startswith("CPU")


def format_value(value: Any, form: Formatter) -> str:
    """Format a value; a dash if it is missing.

    >>> format_value(0.314, "{:.0%}".format), format_value(None, str)
    ('31%', '–')
    """
    return MISSING_TEXT if pd.isna(value) or value == "" else form(value)


def format_interval(low: Any, high: Any, form: Formatter) -> str:
    """Format an interval; empty if an end is unknown.

    >>> format_interval(0.31, 0.4, "{:.0%}".format), format_interval(None, 0.4, "{:.0%}".format)
    ('31% to 40%', '')
    """
    return "" if pd.isna(low) or pd.isna(high) else f"{form(low)} to {form(high)}"


def make_sentence(text: str) -> str:
    """Write words as a sentence.

    >>> make_sentence("it may not help: `snakemake trials` measures it")
    'It may not help: `snakemake trials` measures it.'
    """
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def mark_code(text: str) -> Markup:
    """Return HTML in which words between backticks are code.

    >>> mark_code("2 < 3: `snakemake trials` will tell")
    Markup('2 &lt; 3: <code>snakemake trials</code> will tell')
    """
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


class Field(TypedDict):
    """A field of a table of the page: its text, its interval as text, and what the table is sorted by."""

    text: str
    between: str
    value: Any


def make_field(value: Any, form: Formatter, ends: Sequence[Any] = ()) -> Field:
    """Return a table field: text, interval and sort key; ends: the interval's two ends, if there is one."""
    low, high = ends or (None, None)
    told = format_interval(low, high, form)
    return {"text": format_value(value, form), "between": told, "value": "" if pd.isna(value) else value}
