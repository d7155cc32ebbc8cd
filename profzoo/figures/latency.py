"""Draw percentiles of the time of a step: the median, and how much longer the slowest steps take."""

from collections.abc import Hashable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.figures.plots import attach_titles
from profzoo.range_names import IMPORTED
from profzoo.tables.latency import STEP, TIMES

ORDER = 12
TITLE = "how long the slowest steps take"
INPUTS = ("latency", "cells")
NEEDS = ()
CAPTION = (
    "Percentiles of the time of a step without a profiler, as multiples of the cell's median. The grey bar is the "
    "middle half of the measured steps. Thin bars are intervals that assume no distribution: 95 % intervals of a "
    "single process, which say nothing about other processes; of several, intervals of the median process (the column "
    "confidence of tables/latency.csv says how sure). A percentile without a mark needs more steps or processes than "
    "were measured; the column needed_steps says how many."
)
IMPORTED_CAPTION = (
    "Percentiles of the time of a step, as the tool of its report timed it, as multiples of the cell's median. Bars "
    "are 95 % intervals that assume no distribution. A percentile without a mark needs more steps than the report has."
)
# Marker of each percentile that is marked, and its place in the row, downwards.
MARKS = {90.0: ("o", -0.24), 95.0: ("s", 0.0), 99.0: ("D", 0.24)}
MEDIAN, HALF = 50.0, "middle half of steps"
OF_CELLS = ("steps", "step_median_ns", "step_lower_quartile_ns", "step_upper_quartile_ns")
# Height of a row relative to that of other figures.
TALL = 1.25
# Ratio to the median beyond which the axis is logarithmic.
LINEAR = 4.0
KEYS = ["model", "phase"]


def draw(latency: pd.DataFrame, cells: pd.DataFrame) -> Figure:
    """Draw one row per cell, those with the slowest steps on top; cells without timed steps are left out.

    latency: the table `latency`; columns used: model, phase, of, percentile, ns, low_ns, high_ns. cells: the table
    `cells`; columns used: model, phase, steps, step_median_ns, step_lower_quartile_ns, step_upper_quartile_ns.
    """
    plots.set_style()
    rows = _relate_to_medians(latency, cells)
    if rows.empty:
        return plots.draw_nothing("No cell has steps that were timed without a profiler")
    slowest = rows["most"].sort_values(ascending=False, kind="stable").index
    rows = rows.loc[slowest].reset_index()
    labels = plots.label_cells(rows).to_list()
    height = plots.figure_height(round(TALL * len(rows)))
    figure, axis = plt.subplots(figsize=(plots.figure_width(labels, 7.5, 10), height))
    for place, (label, row) in enumerate(zip(labels, rows.to_dict("records"), strict=True)):
        _draw_row(axis, place, row, label)
    axis.axvline(1, color=palette.PERCENTILE_COLOURS[MEDIAN], linewidth=1.6, label="median", zorder=2)
    axis.set_yticks(range(len(rows)), labels)
    plots.set_row_limits(axis, len(rows))
    axis.grid(visible=False, axis="y")
    furthest = rows[["most", *(f"{name} {percentile}" for name in TIMES for percentile in MARKS)]].max(axis=None)
    if furthest > LINEAR:
        plots.set_logarithmic(axis.xaxis, pd.Series([1.0, furthest]))
    axis.set_xlabel("Time of a step over the cell's median; right: number of measured steps")
    shown = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    names = sorted(shown, key=lambda name: (name != HALF, name != "median", name))
    axis.legend([shown[name] for name in names], names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(names),
                frameon=False, columnspacing=1.4, handletextpad=0.5)  # fmt: skip
    return figure


def _relate_to_medians(latency: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell with timed steps, by model and phase: its quartiles and percentiles over its median.

    A percentile's columns are `ns 90.0`, `low_ns 90.0` and so on; `most` is the largest of percentiles, or the upper
    quartile of a cell without percentiles.
    """
    # Steps of imported reports were timed under a profiler.
    timed = (cells["phase"] != IMPORTED) & (cells["step_median_ns"] > 0)
    rows = cells[timed].set_index(KEYS)[list(OF_CELLS)].astype("float64")
    known = latency[(latency["of"] == STEP) & latency["ns"].notna()].set_index([*KEYS, "percentile"])
    for name in TIMES:
        wide = known[name].astype("float64").unstack("percentile").reindex(rows.index)
        rows = rows.join(wide.reindex(columns=[MEDIAN, *MARKS]).add_prefix(f"{name} "))
    medians = rows.pop(f"ns {MEDIAN}").fillna(rows.pop("step_median_ns"))
    rows = rows.rename(columns={"step_lower_quartile_ns": "lower", "step_upper_quartile_ns": "upper"})
    ratios = rows.drop(columns="steps").div(medians, axis=0)
    most = ratios[[f"ns {percentile}" for percentile in MARKS]].max(axis=1).fillna(ratios["upper"]).fillna(1.0)
    return ratios.assign(steps=rows["steps"], median_ns=medians, most=most)


def _draw_row(axis: Axes, place: int, row: Mapping[Hashable, Any], label: str) -> None:
    """Draw the middle half of a cell's steps, its percentiles, and the number of measured steps."""
    half = row["upper"] - row["lower"]
    axis.barh(place, half, left=row["lower"], height=0.7, color=palette.HALF_OF_STEPS, linewidth=0,
              label=HALF, zorder=1)  # fmt: skip
    for percentile, (marker, offset) in MARKS.items():
        ns, low, high = (row[f"{name} {percentile}"] for name in TIMES)
        if pd.isna(ns):
            continue
        colour, said = palette.PERCENTILE_COLOURS[percentile], f"{percentile:g} % of steps"
        axis.plot([low, high], [place + offset] * 2, color=colour, linewidth=2.5, alpha=0.5, zorder=3)
        point = axis.scatter([ns], [place + offset], color=colour, marker=marker, s=34, edgecolor="white",
                             linewidth=0.6, zorder=4, label=said)  # fmt: skip
        attach_titles(point, [f"{label}: {said} take at most {formatting.format_ns(ns * row['median_ns'])}"])
    axis.text(1.01, place, f"{row['steps']:,.0f}", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
