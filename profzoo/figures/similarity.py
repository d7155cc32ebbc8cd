"""Draws which cells are alike: a clustered heat map of their GPU time by class of kernel."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from profzoo.figures import plots

ORDER = 50
TITLE = "similarity"
INPUTS = ("kernels",)
NEEDS = ("nsys",)
CAPTION = (
    "Which cells are alike: shares of GPU time by class of kernel, cells and classes ordered by average linkage. "
    "Numbers are per cent, from 5 on."
)


def draw(kernels: pd.DataFrame) -> Figure:
    """From the kernel table: cells and classes, each ordered so that those alike are neighbours (average linkage)."""
    plots.style()
    if kernels["total_ns"].sum() == 0:
        return plots.nothing("No kernel was traced: nsys sees them on a GPU")
    times = kernels.assign(cell=plots.label(kernels)).pivot_table(
        index="cell", columns="class", values="total_ns", aggfunc="sum", fill_value=0
    )
    shares = times.div(times.sum(axis=1), axis=0) * 100
    shares = shares.loc[:, shares.max() >= 1]
    several = min(shares.shape) > 1
    grid = sns.clustermap(
        shares, row_cluster=several and len(shares) > 2, col_cluster=several and shares.shape[1] > 2, cmap="Blues",
        vmin=0, vmax=100,
        annot=shares.map(lambda share: f"{share:.0f}" if share >= 5 else ""), fmt="", annot_kws={"fontsize": 7},
        linewidths=0.5,
        figsize=(9, plots.height(len(shares)) + 1.5), dendrogram_ratio=(0.12, 0.06), cbar_pos=(0.02, 0.95, 0.02, 0.04),
        yticklabels=True, xticklabels=True,
    )  # fmt: skip
    grid.ax_cbar.set_title("%", fontsize=8)
    grid.ax_heatmap.set(xlabel="GPU time by class of kernel (%)", ylabel="")
    grid.ax_heatmap.tick_params(axis="y", labelsize=8, rotation=0)
    return grid.figure
