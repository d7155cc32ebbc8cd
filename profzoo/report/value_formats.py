"""How the report shows values: the columns of its tables, each with the form of its values, and a dash for none."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from profzoo.formatting import duration

MISSING_TEXT = "–"
Formatter = Callable[[Any], str]
# What the page calls a column of plain values, its name in the table, and its form.
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
# Those that are shown before a reader chooses.
DEFAULT_COLUMNS = ("samples/s", "GPU busy")
# Of a cell on several GPUs, a row a process.
PROCESS_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "host": ("host", str),
    "rank": ("rank", "{:.0f}".format),
    "step under nsys": ("wall_ns", duration),
    "computing": ("compute_ns", duration),
    "communicating": ("communication_ns", duration),
    "of it waiting": ("waiting_ns", duration),
    "beside computing": ("overlap_share", "{:.0%}".format),
    "imbalance": ("imbalance", "{:+.1%}".format),
}


def choose_agreement_format(column: str) -> Formatter:
    """The form of a column of the table of agreement, by how its name ends."""
    if column.endswith("_ns"):
        return duration
    if column.endswith("_spread"):
        return "{:.1%}".format
    if column.endswith("_slowdown"):
        return "{:.2f}×".format
    return "{:,.1f}".format if column.endswith("_launches") else str


def is_cpu_device(device: Any) -> bool:
    """Whether a cell's device is no GPU.

    >>> is_cpu_device("CPU, 2 threads"), is_cpu_device("NVIDIA H200")
    (True, False)
    """
    return isinstance(device, str) and device.startswith("CPU")


def format_value(value: Any, form: Formatter) -> str:
    """The value in its form, a dash where there is none.

    >>> format_value(0.314, "{:.0%}".format), format_value(None, str)
    ('31%', '–')
    """
    return MISSING_TEXT if pd.isna(value) or value == "" else form(value)


def format_interval(low: Any, high: Any, form: Formatter) -> str:
    """The range that a number lies in, in its form; empty where an end is not known.

    >>> format_interval(0.31, 0.4, "{:.0%}".format), format_interval(None, 0.4, "{:.0%}".format)
    ('31% – 40%', '')
    """
    return "" if pd.isna(low) or pd.isna(high) else f"{form(low)} – {form(high)}"


def make_field(value: Any, form: Formatter, ends: Sequence[Any] = ()) -> dict[str, Any]:
    """A field of a table: what is shown, in which range, and what it is sorted by; ends: of that, where it has one."""
    low, high = ends or (None, None)
    told = format_interval(low, high, form)
    return {"text": format_value(value, form), "between": told, "value": "" if pd.isna(value) else value}
