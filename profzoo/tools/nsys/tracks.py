"""Defines tracks, which show what happened during one typical step, and collects them from their suppliers."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys import dictionary

COLUMNS = ["track", "label", "start_ns", "end_ns", "value", "unit"]
TEXTS = ("track", "label", "unit")


@dataclass(frozen=True)
class TypicalStep:
    """The typical step as the trace has it.

    process: number of the process in the export (`globalPid`). begin, end: times in ns on the clock of the export.
    """

    process: int
    begin: int
    end: int


def _ordered(table: pd.DataFrame) -> str | None:
    wrong = table["end_ns"] < table["start_ns"]
    return f"row {int(wrong.argmax()) + 1}: a span ends before it starts" if wrong.any() else None


TABLE = Table(
    columns={
        **dict.fromkeys(TEXTS, column_types.TEXT),
        "start_ns": column_types.WHOLE,
        "end_ns": column_types.WHOLE,
        "value": column_types.or_missing(column_types.NUMBER),
    },
    holds=_ordered,
    about=dictionary.TRACKS,
)

# What a supplier returns: spans with COLUMNS, whose times count from the step's begin; or one line that says why there
# are none, and which setting collects them. Spans without a number have the value NaN.
Supplied: TypeAlias = pd.DataFrame | str
# It reads from the connection to an export, with the names of its tables.
Supplier: TypeAlias = Callable[[sqlite3.Connection, set[str], TypicalStep], Supplied]


def collect_tracks(
    suppliers: Sequence[Supplier], database: sqlite3.Connection, tables: set[str], step: TypicalStep
) -> tuple[pd.DataFrame, list[str]]:
    """Return the spans of all tracks that were collected, and one line about each that was not.

    suppliers: in the order of the tracks. Spans keep the order of their supplier's tracks, and are sorted by start
    within a track. They are cut at both ends of the step, and spans outside it are left out.

    >>> step = TypicalStep(process=1, begin=1000, end=1100)
    >>> span = make_spans("SMs active", [(-20, 40, 35.0), (40, 90, 70.0), (200, 300, 1.0)], unit="%")
    >>> spans, missing = collect_tracks([lambda *_: span, lambda *_: "no memory"], None, set(), step)
    >>> spans[["start_ns", "end_ns", "value"]].to_numpy().tolist(), missing
    ([[0.0, 40.0, 35.0], [40.0, 90.0, 70.0]], ['no memory'])
    """
    found = [supplier(database, tables, step) for supplier in suppliers]
    frames = [cut_spans(frame, step.end - step.begin) for frame in found if isinstance(frame, pd.DataFrame)]
    held = [frame for frame in frames if len(frame)]
    spans = pd.concat(held, ignore_index=True) if held else TABLE.empty()
    return spans[COLUMNS], [line for line in found if isinstance(line, str)]


def make_spans(
    track: str, spans: Sequence[tuple[int, int, float]], unit: str = "", labels: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return spans of one track with COLUMNS; spans: start and end in ns, and value; labels: one a span."""
    frame = pd.DataFrame(spans, columns=["start_ns", "end_ns", "value"])
    types: Mapping[str, str] = {"start_ns": "int64", "end_ns": "int64", "value": "float64"}
    texts = {"track": track, "unit": unit, "label": list(labels) if labels is not None else ""}
    return frame.astype(types).assign(**texts).astype(dict.fromkeys(TEXTS, "str"))[COLUMNS]


def cut_spans(spans: pd.DataFrame, step_ns: int) -> pd.DataFrame:
    """Return the parts of spans within a step of `step_ns`, by track in order of appearance, then by start."""
    inside = spans[(spans["start_ns"] < step_ns) & (spans["end_ns"] > 0)]
    inside = inside.assign(start_ns=inside["start_ns"].clip(lower=0), end_ns=inside["end_ns"].clip(upper=step_ns))
    place = inside["track"].map({name: place for place, name in enumerate(inside["track"].unique())})
    ordered = inside.assign(_place=place).sort_values(["_place", "start_ns", "end_ns"], kind="stable")
    return ordered.drop(columns="_place").reset_index(drop=True)
