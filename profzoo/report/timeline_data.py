"""Fit the timelines of typical steps into a page: so many spans over all cells, as columns of small numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from profzoo.json_types import JsonObject
from profzoo.tools.nsys.pictures.median_step import merge_gaps, merge_neighbours
from profzoo.tools.nsys.pictures.tracks import merge_values

if TYPE_CHECKING:
    from profzoo.tools.nsys.pictures.median_step import Timeline
    from profzoo.tools.nsys.pictures.tracks import Track

# The most spans in the timelines of a page. A span takes six to nine bytes of the page, so all take about a megabyte.
MOST_SPANS = 120_000
# A row keeps so many spans, however many cells the page has.
FEWEST = 200
# Times are rounded to this part of the step, or a finer one: a canvas shows thousands of pixels.
RESOLUTION = 1e-6
# Significant digits of lengths; a reader sees three.
DIGITS = 4
Rows = Sequence[Sequence[float | None]]


def thin_timelines(
    timelines: "Mapping[tuple[str, ...], Timeline]", most: int = MOST_SPANS
) -> "dict[tuple[str, ...], Timeline]":
    """Return the timelines with about `most` spans together: rows with the most spans lose detail first."""
    counts = [len(rows) for step in timelines.values() for rows in _list_rows(step)]
    limit = find_limit(counts, most)
    return {cell: _thin_timeline(step, limit) for cell, step in timelines.items()}


def find_limit(counts: Sequence[int], most: int) -> int:
    """Return the largest number of spans per row with which all rows have at most `most`; at least FEWEST.

    >>> find_limit([10, 400, 1000], 1210), find_limit([10, 400, 1000], 2000), find_limit([1000] * 9, 90)
    (800, 1000, 200)
    """
    left = most
    ordered = sorted(counts)
    for place, count in enumerate(ordered):
        share = left // (len(ordered) - place)
        if count > share:
            return max(share, FEWEST)
        left -= count
    return max([*ordered[-1:], FEWEST])


def _list_rows(step: "Timeline") -> Iterable[Rows]:
    tracks = (track["spans"] for track in step.get("tracks", ()))
    return chain((step["calls"], step["gaps"]), step["streams"].values(), tracks)


def _thin_timeline(step: "Timeline", limit: int) -> "Timeline":
    if max(map(len, _list_rows(step)), default=0) <= limit:
        return step
    gaps = pd.DataFrame(step["gaps"], columns=["start", "ns", "code"])
    return {
        **step,
        "calls": _thin_rows(step["calls"], limit),
        "streams": {name: _thin_rows(rows, limit) for name, rows in step["streams"].items()},
        "gaps": merge_gaps(gaps, step["ns"], _find_slots(len(gaps), limit)).to_numpy().tolist(),
        "tracks": [_thin_track(track, limit) for track in step.get("tracks", ())],
    }


def _thin_rows(rows: Sequence[Sequence[int]], limit: int) -> Sequence[Sequence[int]]:
    """Return calls or operations of a stream, of which neighbours are merged if there are more than the limit."""
    if len(rows) <= limit:
        return rows
    table = pd.DataFrame([(at, at + ns, name, *(merged or [1])) for at, ns, name, *merged in rows],
                         columns=["start", "end", "name", "merged"])  # fmt: skip
    found = merge_neighbours(table, _find_slots(len(rows), limit))
    found = found.assign(ns=found["end"] - found["start"])
    return found[["start", "ns", "name", "merged"]].to_numpy().tolist()


def _find_slots(count: int, limit: int) -> int:
    """Return what merges so many rows to about the limit, and not to half of it: the merge has a slot for every two.

    >>> _find_slots(900, 1000), _find_slots(1200, 1000), _find_slots(5000, 1000)
    (2000, 1199, 2000)
    """
    return min(2 * limit, count - 1) if count > limit else 2 * limit


def _thin_track(track: "Track", limit: int) -> "Track":
    if len(track["spans"]) <= limit:
        return track
    spans = pd.DataFrame(track["spans"], columns=["start_ns", "ns", "value", "label"])
    spans = spans.assign(end_ns=spans["start_ns"] + spans["ns"], value=spans["value"].astype(float))
    found = merge_values(spans, track["unit"], limit)
    rows = zip(found["start_ns"], found["end_ns"] - found["start_ns"], found["value"], found["label"], strict=True)
    return {
        **track,
        "spans": [
            [int(start), int(ns), None if np.isnan(value) else float(f"{value:.6g}"), int(label)]
            for start, ns, value, label in rows
        ],
    }


def fold_timeline(step: "Mapping[str, Any]") -> JsonObject:
    """Return a timeline whose rows are columns, as the page's script unfolds them; see fold_rows."""
    grain = find_grain(step["ns"])
    return {
        **step,
        "grain": grain,
        **{name: fold_rows(step[name], grain) for name in ("ranges", "calls", "gaps")},
        "streams": {name: fold_rows(rows, grain) for name, rows in step["streams"].items()},
        "tracks": [{**track, "spans": fold_rows(track["spans"], grain)} for track in step.get("tracks", ())],
    }


def find_grain(ns: int) -> int:
    """Return the ns to whose multiples the starts of a step's spans are rounded: a power of ten.

    >>> find_grain(25_641_805), find_grain(3_000_000_000), find_grain(900)
    (10, 1000, 1)
    """
    return 10 ** max(0, math.floor(math.log10(max(ns, 1) * RESOLUTION)))


def fold_rows(rows: Rows, grain: int) -> list[list[float | None]]:
    """Return the columns of rows that begin with a start and a length in ns.

    A start is counted from the end of the row before, in grains, so that most numbers have few digits.

    >>> fold_rows([[100, 50, 3], [160, 20, 4]], 10)
    [[10, 1], [50, 20], [3, 4]]
    """
    ordered = sorted(rows, key=lambda row: row[0] or 0)
    columns: list[list[float | None]] = [list(column) for column in zip(*ordered, strict=True)]
    end = 0
    for place, (at, ns, *_) in enumerate(ordered):
        length = int(float(f"{ns:.{DIGITS}g}"))
        columns[0][place], columns[1][place] = round(((at or 0) - end) / grain), length
        end += int(columns[0][place] or 0) * grain + length
    return columns
