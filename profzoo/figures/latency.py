"""Draw percentiles of the time of a step: the median, and how much longer the slowest steps take."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.figures.svg_tooltips import attach_titles
from profzoo.tables.latency import STEP

ORDER = 12
TITLE = "how long the slowest steps take"
INPUTS = ("latency",)
NEEDS = ()
CAPTION = (
    "Percentiles of the time of a step without a profiler, as multiples of the cell's median. The thin line goes from "
    "the fastest steps to the slowest ones that are known. Bars are 95 % intervals that assume no distribution. A "
    "percentile without a mark needs more steps than were measured; the text says how many. The interval of a single "
    "process says nothing about other processes."
)
# Marker of each percentile that is marked.
MARKS = {50.0: "|", 90.0: "o", 95.0: "s", 99.0: "D"}
LAST = max(MARKS)


def draw(latency: pd.DataFrame) -> Figure:
    """Draw one row per cell, those with the slowest steps on top; cells without a median are left out.

    latency: the table `latency`; columns used: model, phase, of, percentile, ns, low_ns, high_ns, needed_steps.
    """
    plots.set_style()
    latency = latency[latency["of"] == STEP]
    table = latency.assign(row=plots.label_cells(latency), median=_medians(latency))
    known = table[table["median"].notna()]
    if known.empty:
        return plots.draw_nothing("No cell has enough steps for the interval of their median")
    for name in ("ns", "low_ns", "high_ns"):
        known = known.assign(**{name: known[name] / known["median"]})
    slowest = known.groupby("row")["ns"].max().sort_values(ascending=False, kind="stable")
    figure, axis = plt.subplots(figsize=(10, plots.figure_height(len(slowest))))
    for place, row in enumerate(slowest.index):
        _draw_row(axis, place, known[known["row"] == row].sort_values("percentile"))
    axis.set_yticks(range(len(slowest)), list(slowest.index))
    plots.set_row_limits(axis, len(slowest))
    axis.set_xlabel("Time of a step over the median")
    handles, labels = axis.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    axis.legend(shown.values(), shown.keys(), loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False)
    return figure


def _medians(latency: pd.DataFrame) -> pd.Series:
    """Return the median of each row's cell; NaN if it is not known."""
    keys = ["model", "phase", "of"]
    medians = latency[latency["percentile"] == 50].set_index(keys)["ns"]
    return pd.Series(medians.reindex(pd.MultiIndex.from_frame(latency[keys])).to_numpy(), latency.index)


def _draw_row(axis: Axes, place: int, rows: pd.DataFrame) -> None:
    """Draw a cell's percentiles; rows: by percentile, times over the median."""
    known = rows[rows["ns"].notna()]
    axis.plot(known["ns"], [place] * len(known), color="#999999", linewidth=0.8, zorder=1)
    for percentile, marker in MARKS.items():
        colour = palette.PERCENTILE_COLOURS[percentile]
        own = known[known["percentile"] == percentile]
        if own.empty:
            continue
        (ns,), (low,), (high,) = (own[name] for name in ("ns", "low_ns", "high_ns"))
        label = f"{percentile:g} % of steps"
        axis.plot([low, high], [place, place], color=colour, linewidth=3, alpha=0.45, solid_capstyle="butt", zorder=2)
        point = axis.scatter([ns], [place], color=colour, marker=marker, s=30, zorder=3, label=label)
        took = formatting.duration(ns * own["median"].iloc[0])
        attach_titles(point, [f"{own['row'].iloc[0]}: {label} take at most {took}"])
    (last,) = rows.loc[rows["percentile"] == LAST, "needed_steps"]
    if last:
        said = f"{LAST:g} % needs about {formatting.estimate(last)} steps"
        axis.text(1.01, place, said, transform=axis.get_yaxis_transform(), va="center", fontsize=8, color="#666666")
