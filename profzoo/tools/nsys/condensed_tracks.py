"""Condenses tracks for the page: neighbouring spans of a track that has more than can be seen are drawn as one."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pandas as pd

# The most spans of a track in the page.
MOST = 500
# What is shown of merged spans with this unit is their largest value, and of others the mean over time.
PEAK_UNITS = ("bytes",)


class Track(TypedDict):
    """A row below the typical step.

    name, unit: as in the table of tracks. top: the value at the upper edge of the row. peak: the largest value of all
    spans. Both are None without values. labels: the distinct labels of spans. spans: start and length in ns, value
    (None without one), and the place of the label.
    """

    name: str
    unit: str
    top: float | None
    peak: float | None
    labels: Sequence[str]
    spans: Sequence[Sequence[float | None]]


def condense_tracks(spans: pd.DataFrame) -> list[Track]:
    """Return the tracks of a table of spans, in their order; spans: with the columns of tracks.COLUMNS.

    >>> frame = pd.DataFrame({"track": "SMs active", "label": "", "start_ns": [0, 50], "end_ns": [50, 60],
    ...                       "value": [20.0, 80.0], "unit": "%"})
    >>> (track,) = condense_tracks(frame)
    >>> track["name"], track["top"], track["peak"], track["labels"], track["spans"]
    ('SMs active', 100.0, 80.0, [''], [[0, 50, 20.0, 0], [50, 10, 80.0, 0]])
    """
    return [_track(str(name), mine) for name, mine in spans.groupby("track", sort=False)]


def _track(name: str, spans: pd.DataFrame) -> Track:
    unit = str(spans["unit"].iloc[0])
    largest = float(spans["value"].max()) if spans["value"].notna().any() else None
    rows = _merge(spans, unit) if len(spans) > MOST else spans
    codes, labels = pd.factorize(rows["label"])
    drawn = zip(rows["start_ns"], rows["end_ns"] - rows["start_ns"], rows["value"], codes, strict=True)
    return {
        "name": name,
        "unit": unit,
        "top": 100.0 if unit == "%" and largest is not None else largest,
        "peak": largest,
        "labels": [str(label) for label in labels],
        "spans": [
            [int(start), int(ns), None if np.isnan(value) else float(f"{value:.6g}"), int(code)]
            for start, ns, value, code in drawn
        ],
    }


def _merge(spans: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Return one span per slot of time, as long as its spans together, with the label of the longest one."""
    begin, end = spans["start_ns"].min(), spans["end_ns"].max()
    slot = ((spans["start_ns"] - begin) * MOST // max(end - begin, 1)).rename("slot")
    length = spans["end_ns"] - spans["start_ns"]
    known = spans["value"].notna()
    moved = (spans["value"] * length).where(known)
    found = spans.groupby(slot).agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), value=("value", "max"))
    if unit not in PEAK_UNITS:
        found["value"] = moved.groupby(slot).sum(min_count=1) / length.where(known).groupby(slot).sum()
    # Gaps between the spans are not drawn as if they were part of one.
    found["end_ns"] = found["end_ns"].clip(upper=found["start_ns"] + length.groupby(slot).sum())
    longest = length.groupby(slot).idxmax()
    return found.assign(label=spans.loc[longest, "label"].to_numpy())
