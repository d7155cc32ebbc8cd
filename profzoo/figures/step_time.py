"""Draws the unprofiled time of a step and the throughput, cell by cell."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from profzoo.figures import plots

ORDER = 10
TITLE = "step time"
INPUTS = ("cells",)
NEEDS = ()
CAPTION = "Unprofiled time of a step and throughput of each cell, train beside inference."


def draw(cells: pd.DataFrame) -> Figure:
    """From the table of cells: a row a model, train and inference side by side, on a logarithmic axis."""
    plots.style()
    models = list(dict.fromkeys(cells["model"]))
    figure, axes = plt.subplots(1, 2, figsize=(9, plots.height(2 * len(models))), sharey=True)
    wide = cells.assign(step_ms=cells["step_ns"] / 1e6)
    titles = {"step_ms": "Time a step (ms)", "items_per_s": "Throughput (samples/s)"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for offset, (phase, colour) in zip((-0.2, 0.2), plots.PHASE_COLOURS.items(), strict=True):
            rows = wide[wide["phase"] == phase]
            places = [models.index(model) + offset for model in rows["model"]]
            bars = axis.barh(places, rows[column], height=0.36, color=colour, label=phase)
            axis.bar_label(bars, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in rows[column]],
                           padding=3, fontsize=8)  # fmt: skip
        axis.set_xscale("log")
        axis.set_title(title, fontsize=11)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.margins(x=0.18)
        axis.grid(visible=False, axis="y")
    axes[0].set_yticks(range(len(models)), models)
    plots.rows(axes[0], len(models))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", ncols=2, frameon=False)
    return figure
