"""Draw unprofiled time per step and throughput of each cell."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.figures.plots import attach_titles

ORDER = 10
TITLE = "step time"
INPUTS = ("cells",)
NEEDS = ()
TITLES = {"step_ms": "Time per step (ms)", "items_per_s": "Throughput (samples/s)"}
CAPTION = "Unprofiled time per step and throughput of each cell, training beside inference."
IMPORTED_CAPTION = "Time per step of each cell, as the tool of its report timed it, which makes steps longer."


def draw(cells: pd.DataFrame) -> Figure:
    """Draw one row per model, the longest step on top, and one dot per phase, on logarithmic axes.

    cells: the table `cells`, one row per cell; columns used: model, phase, step_ns, items_per_s.
    """
    plots.set_style()
    longest = cells.groupby("model")["step_ns"].max().sort_values(ascending=False, kind="stable")
    models = longest.index.tolist()
    wide = cells.assign(step_ms=cells["step_ns"] / 1e6)
    # The throughput of imported reports is unknown.
    titles = {column: title for column, title in TITLES.items() if wide[column].notna().any()}
    if not titles:
        return plots.draw_nothing("No time per step is known")
    size = (4.5 * len(titles), plots.figure_height(len(models)))
    figure, (axes,) = plt.subplots(1, len(titles), figsize=size, sharey=True, squeeze=False)
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for model, rows in wide[wide[column].notna()].groupby("model"):
            # The label of the smaller value is on its left, so that the two labels do not overlap.
            ends = rows.sort_values(column)
            place = models.index(str(model))
            axis.plot(ends[column], [place] * len(ends), color="#cccccc", linewidth=1.5, zorder=1)
            for end, (_, row) in enumerate(ends.iterrows()):
                _draw_dot(axis, row, column, place, left=end == 0 and len(ends) > 1)
        plots.set_logarithmic(axis.xaxis, wide[column])
        axis.set_title(title, fontsize=11)
        axis.margins(x=0.25)
        axis.grid(visible=False, axis="y")
    axes[0].set_yticks(range(len(models)), models)
    plots.set_row_limits(axes[0], len(models))
    handles = [plt.Line2D([], [], marker=plots.PHASE_MARKERS[phase], linestyle="", color=colour, label=phase)
               for phase, colour in palette.PHASE_COLOURS.items() if cells["phase"].eq(phase).any()]  # fmt: skip
    figure.legend(handles=handles, loc="lower right", ncols=2, frameon=False)
    return figure


def _draw_dot(axis: Axes, row: pd.Series, column: str, place: int, left: bool) -> None:
    """Draw a dot with its value beside it; place: the row; left: whether the value is on the left of the dot."""
    phase, value = row["phase"], row[column]
    marker = plots.PHASE_MARKERS[phase]
    dot = axis.scatter([value], [place], color=palette.PHASE_COLOURS[phase], marker=marker, s=34, zorder=3)
    attach_titles(dot, [f"{row['model']} {phase}: {formatting.number(value, 4)}"])
    axis.annotate(formatting.number(value), (value, place), xytext=(-6 if left else 6, 0),
                  textcoords="offset points", ha="right" if left else "left", va="center", fontsize=7.5)  # fmt: skip
