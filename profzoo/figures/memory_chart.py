"""Draw how many bytes each cell moves between the parts of the memory system, and how near the peak that is."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import plots
from profzoo.tables.cell_counters import add_up_links

ORDER = 72
TITLE = "memory chart"
INPUTS = ("memory_chart",)
NEEDS = ("memory_chart",)
CAPTION = (
    "Bytes per step between registers, L1, shared memory, L2, DRAM and the host, by ncu; the colour shows the share of "
    "the link's peak bandwidth while kernels run. Hit rates of L1 and L2 are on the right. Links whose peak was not "
    "collected are grey. Both directions of a link are together where only their sum was counted. `counted` is the "
    "share of the GPU time in launches that the bytes are of."
)

HITS = {"L1\nhits": ("global_load", "global_store", "l1"), "L2\nhits": ("l2_read", "l2_write", "l2")}
NOT_COLLECTED = "The memory chart was not collected: ncu='{set: charts}' collects it"


def draw(memory_chart: pd.DataFrame) -> Figure:
    """Draw one row per cell; links that no cell has are left out.

    memory_chart: the table `memory_chart`, one row per cell, class and link; columns used: model, phase, level, link,
    bytes, peak_pct, hit_pct, counted_share.
    """
    plots.set_style()
    rows = memory_chart[memory_chart["level"] == "cell"]
    if rows.empty:
        return plots.draw_nothing(NOT_COLLECTED)
    covered = rows.groupby(["model", "phase"])["counted_share"].transform("min")
    labels = plots.label_cells(rows) + plots.describe_coverage(rows.assign(counted_share=covered))
    cells = rows.assign(cell=labels)
    order = list(dict.fromkeys(cells["cell"]))
    bytes_, peaks, hits = (
        cells.pivot_table(index="cell", columns="link", values=name, aggfunc="first", dropna=False).reindex(order)
        for name in ("bytes", "peak_pct", "hit_pct")
    )
    sums = add_up_links(bytes_)
    of_peak = add_up_links(peaks.where(bytes_ > 0), largest=True).reindex(columns=sums.columns)
    sums, of_peak = (table.rename(columns=_break_name) for table in (sums, of_peak))
    known = {name: hits[[one for one in links if one in hits]].bfill(axis=1) for name, links in HITS.items()}
    rates = pd.DataFrame({name: one.iloc[:, 0] for name, one in known.items() if one.shape[1]}).dropna(
        axis=1, how="all"
    )
    columns = len(sums.columns) + len(rates.columns)
    width = plots.figure_width(order, 0.5 + 0.75 * columns, 11)
    figure, axis = plt.subplots(figsize=(width, plots.figure_height(len(order)) + 0.2))
    texts = sums.map(lambda count: "–" if pd.isna(count) else formatting.size(count).replace("bytes", "B"))
    hit_texts = rates.map(lambda rate: "–" if pd.isna(rate) else f"{min(rate, 100):.0f} %")
    _draw_heat(axis, of_peak, rates, texts.join(hit_texts))
    axis.set_xlabel("Bytes per step; orange: share of the peak bandwidth; blue: hit rate")
    return figure


def _break_name(group: str) -> str:
    """Return the name of a group of links in two lines."""
    return group.replace(" ", "\n" if group == "shared memory" else ":\n")


def _draw_heat(axis: Axes, of_peak: pd.DataFrame, rates: pd.DataFrame, texts: pd.DataFrame) -> None:
    """Draw shares of the peak and hit rates beside each other, from 0 to 100 %, each with its text."""
    colours = of_peak.join(rates).astype("float64")
    for mine, colour_map in ((of_peak, "Oranges"), (rates, "Blues")):
        if mine.notna().any(axis=None):
            shown = colours.where(colours.columns.isin(mine.columns)[None, :].repeat(len(colours), axis=0))
            sns.heatmap(shown, ax=axis, cmap=colour_map, vmin=0, vmax=100, cbar=False, linewidths=0.5)
    axis.set_facecolor("#eeeeee")
    axis.grid(visible=False)
    axis.set(xlim=(0, len(texts.columns)), ylim=(len(texts), 0), ylabel="")
    axis.set_xticks(np.arange(len(texts.columns)) + 0.5, texts.columns, rotation=0)
    plots.name_columns_on_top(axis, len(texts))
    axis.set_yticks(np.arange(len(texts)) + 0.5, texts.index, rotation=0)
    for row, column in np.ndindex(texts.shape):
        value = colours.iloc[row, column]
        axis.text(column + 0.5, row + 0.5, texts.iloc[row, column], ha="center", va="center", fontsize=8,
                  color="white" if pd.notna(value) and value > 65 else "black")  # fmt: skip
