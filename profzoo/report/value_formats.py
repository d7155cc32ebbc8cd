"""Formats of the report's values: the columns of its tables, and a dash for missing values."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import pandas as pd
from markupsafe import Markup, escape

from profzoo.figures.palette import PART_COLOURS, STEP_COLOURS
from profzoo.formatting import format_ns, gain_with_interval, gains
from profzoo.tables import cell_tables, schemas
from profzoo.tables.user_ranges import select_parts

MISSING_TEXT = "–"
Formatter = Callable[[Any], str]
# Heading of each column of plain values, its name in the table, and its format.
CELL_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "samples/s": ("items_per_s", "{:,.1f}".format),
    "GPU busy": ("busy_share", "{:.0%}".format),
    "gain": ("gain", lambda gain: f"{gains(gain)[0]}×"),
    "batch": ("batch", "{:,.0f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "median": ("step_median_ns", format_ns),
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
    "step under nsys": ("wall_ns", format_ns),
    "computing": ("compute_ns", format_ns),
    "communicating": ("communication_ns", format_ns),
    "waiting for other processes": ("waiting_ns", format_ns),
    "overlapped by computing": ("overlap_share", "{:.0%}".format),
    "imbalance": ("imbalance", "{:+.1%}".format),
}


def choose_agreement_format(column: str) -> Formatter:
    """Return the format of a column of the agreement table, by the end of its name."""
    if column.endswith("_ns"):
        return format_ns
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


def format_gain(gain: Any, low: Any, high: Any) -> tuple[str, str]:
    """Format a gain and its interval with the same places; each is empty if it is unknown.

    >>> format_gain(1.48, 1.004, 2.16), format_gain(1.5, None, None), format_gain(None, None, None)
    (('1.480', '1.004 to 2.160'), ('1.50', ''), ('', ''))
    """
    if pd.isna(gain):
        return "", ""
    return gain_with_interval(gain, *(None if pd.isna(end) else end for end in (low, high)))


def gain_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the gain of a row of plans or trials as text, a dash if it is unknown, and its interval.

    >>> gain_fields({"gain": 1.48, "gain_low": 1.004, "gain_high": 2.16})
    {'gain': '1.480×', 'between': '1.004 to 2.160'}
    """
    gain, between = format_gain(row["gain"], row["gain_low"], row["gain_high"])
    return {"gain": f"{gain}×" if gain else MISSING_TEXT, "between": between}


def make_sentence(text: str) -> str:
    """Write words as a sentence.

    >>> make_sentence("it may not help: measure it")
    'It may not help: measure it.'
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


# Make a cell's strip: a bar of the step's parts, each as wide as its share.

# Smallest part to show, in %.
LEAST_PERCENT = 0.5
NO_ROWS = pd.DataFrame(columns=schemas.CELL)


class StripPart(TypedDict):
    """A part of a cell's strip: its name, its share of the step in %, and its colour."""

    part: str
    percent: float
    colour: str


def step_parts(tables: Mapping[str, pd.DataFrame], model: str, phase: str) -> list[StripPart]:
    """Return the parts with share in % and colour: ranges of a cell on a CPU, parts by nsys of a cell on a GPU.

    The strip is empty if the cell has neither. tables: steps and, if there are any, ranges of all cells.
    """
    given = (tables.get(name, NO_ROWS) for name in ("steps", "ranges"))
    steps, ranges = (select_parts(schemas.rows_of_cell(table, model, phase)) for table in given)
    if len(steps) and "busy_ns" in steps:
        shares = cell_tables.step_shares(steps).mean().rename(cell_tables.name_part)
        colours = STEP_COLOURS
    elif len(ranges) and (ranges["clock"] == "cpu").all():
        times = ranges.groupby("range")["ns_per_step"].sum()
        shares, colours = times / times.sum(), PART_COLOURS
    else:
        return []
    parts = ((part, shares.get(part, 0.0) * 100, colour) for part, colour in colours.items())
    return [
        {"part": part, "percent": percent, "colour": colour}
        for part, percent, colour in parts
        if percent >= LEAST_PERCENT
    ]


def describe_parts(strip: Sequence[StripPart]) -> str:
    """Describe the strip in words, for screen readers."""
    return ", ".join(f"{part['part']} {part['percent']:.0f} %" for part in strip)
