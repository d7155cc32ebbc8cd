"""Draw achieved occupancy against the occupancy that launches allow, by cell and kernel class."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import palette, plots

ORDER = 80
TITLE = "occupancy"
INPUTS = ("kernels",)
NEEDS = ("roofline",)
CAPTION = (
    "Achieved occupancy against the occupancy that the launches' resources allow, by cell and kernel class. Both are "
    "means over launches, weighted by GPU time. Points far below the line have too few blocks, or blocks of unequal "
    "length."
)

LEAST_SHARE = 0.05


def draw(kernels: pd.DataFrame) -> Figure:
    """Draw one point per cell and kernel class; its area shows the class's share of the cell's GPU time.

    Classes with a share below LEAST_SHARE are left out.

    kernels: the table `kernels`, one row per cell, launch configuration and range; columns used: model, phase, class,
    total_ns, occupancy_pct, occupancy_limit_pct.
    """
    plots.set_style()
    wanted = ["occupancy_pct", "occupancy_limit_pct"]
    known = kernels.reindex(columns=[*kernels.columns, *(name for name in wanted if name not in kernels)])
    known = known[known[wanted].notna().all(axis=1)]
    if known.empty:
        return plots.draw_nothing("Achieved occupancy was not collected: set ncu.set to survey")
    keys = ["model", "phase", "class"]
    points = pd.DataFrame({name: plots.weighted_means(known, name, keys) for name in wanted})
    times = known.groupby(keys)["total_ns"].sum()
    points["share"] = times / kernels.groupby(keys[:2])["total_ns"].sum().reindex(times.index.droplevel(2)).to_numpy()
    points = points[points["share"] >= LEAST_SHARE].reset_index()
    figure, axis = plt.subplots(figsize=(8, 7))
    axis.plot([0, 100], [0, 100], color="#444444", linewidth=1, linestyle="--")
    for kind, colour in palette.CLASS_COLOURS.items():
        mine = points[points["class"] == kind]
        if len(mine):
            axis.scatter(mine["occupancy_limit_pct"], mine["occupancy_pct"], s=20 + 260 * mine["share"], color=colour,
                         alpha=0.85, label=kind, edgecolor="#333333", linewidth=0.5, zorder=3)  # fmt: skip
    axis.set(xlim=(0, 104), ylim=(0, 104), xlabel="Theoretical occupancy, by the launch's resources (%)",
             ylabel="Achieved occupancy (%)")  # fmt: skip
    # Points of the legend have one size, because sizes in the figure mean shares.
    kinds = [plt.Line2D([], [], marker="o", linestyle="", color=palette.CLASS_COLOURS[label], label=label)
             for label in axis.get_legend_handles_labels()[1]]  # fmt: skip
    # The background is white because grid lines run behind the legend.
    title = "Kernels of one class in a cell;\nthe area is their share of its time"
    axis.legend(handles=kinds, title=title, alignment="left", loc="upper left", framealpha=1, edgecolor="none")
    return figure
