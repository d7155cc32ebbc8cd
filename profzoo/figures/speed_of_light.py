"""Draw how close each cell's kernels come to the GPU's limits, as a heat map of cells and metrics."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import plots

ORDER = 70
TITLE = "speed of light"
INPUTS = ("kernels",)
NEEDS = ("roofline",)
CAPTION = (
    "How close the kernels of each cell come to the limits of the GPU, by ncu's throughput metrics; means over "
    "launches, weighted by their time. `counted` is the share of the GPU time in launches that this is known of."
)

# Width of a column in inches, in which the lines of its name have room.
COLUMN = 1.0
METRICS = {
    "sm_pct": "SMs,\nbusiest unit",
    "memory_pct": "memory,\nbusiest unit",
    "issue_pct": "instruction\nissue",
    "dram_pct": "DRAM\nbandwidth",
    "l2_pct": "L2\nbandwidth",
    "l2_hit_pct": "L2 hits",
    "occupancy_pct": "occupancy",
}


def draw(kernels: pd.DataFrame) -> Figure:
    """Draw the mean of each metric over a cell's launches, weighted by GPU time; metrics without data are left out.

    kernels: the table `kernels`, one row per cell, launch configuration and range; columns used: model, phase,
    total_ns, and METRICS in %.
    """
    plots.set_style()
    known = {name: label for name, label in METRICS.items() if name in kernels and kernels[name].notna().any()}
    if not known:
        return plots.draw_nothing("No speed-of-light metrics were collected: set ncu.set to survey")
    cells = kernels.assign(cell=plots.label_cells(kernels))
    means = pd.DataFrame({label: plots.weighted_means(cells, name, "cell") for name, label in known.items()})
    means = means.reindex(list(dict.fromkeys(cells["cell"])))
    counted = cells["total_ns"].where(cells[list(known)].notna().any(axis=1)).groupby(cells["cell"]).sum()
    share = (counted / cells.groupby("cell")["total_ns"].sum()).reindex(means.index)
    means.index = means.index + plots.describe_coverage(share.to_frame("counted_share")).to_numpy()
    figure, axis = plt.subplots(
        figsize=(plots.figure_width(means.index, 1.6 + COLUMN * len(known), 8), plots.figure_height(len(means)))
    )
    plots.draw_percent_map(axis, means, "Blues")
    axis.tick_params(axis="x", labelsize=8)
    axis.set(xlabel="Mean over launches, weighted by GPU time (%)", ylabel="")
    return figure
