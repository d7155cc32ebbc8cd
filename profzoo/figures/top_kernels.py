"""Draw the kernels (on a CPU: the operators) that take the most time, split by phase."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import palette, plots
from profzoo.kernels import short_names
from profzoo.tables.schemas import prefer_tool

ORDER = 110
TITLE = "top kernels"
INPUTS = ("activity",)
NEEDS = ("count", "trace")
OPTIONS = ("top",)
CAPTION = "Kernels (on a CPU, operators) by their mean share of a cell's time."
CPU_TITLE = "top operators"
CPU_CAPTION = "Operators by their mean share of a cell's time, by own time, without the operators that they call."


def draw(activity: pd.DataFrame, top: int) -> Figure:
    """Draw the `top` kernels with the largest mean share of a cell's time; every cell has the same weight.

    activity: the table `activity`, one row per cell, tool, range and kernel; columns used: model, phase, tool, name,
    share.
    """
    plots.set_style()
    chosen = prefer_tool(activity)
    # Dollar signs are escaped, because matplotlib reads text between two of them as a formula.
    names = chosen["name"].map(short_names.shorten_names(chosen["name"])).str.replace("$", r"\$", regex=False)
    count = len(chosen[["model", "phase"]].drop_duplicates())
    chosen = chosen.assign(name=names)
    order = [phase for phase in palette.PHASE_COLOURS if chosen["phase"].eq(phase).any()]
    wide = chosen.pivot_table(index="name", columns="phase", values="share", aggfunc="sum").fillna(0) / count * 100
    wide = wide.loc[wide.sum(axis=1).nlargest(top).index, order]
    figure, axis = plt.subplots(figsize=(10, plots.figure_height(len(wide))))
    left = pd.Series(0.0, index=wide.index)
    for part in order:
        colour = palette.PHASE_COLOURS[part]
        axis.barh(wide.index, wide[part], left=left, color=colour, label=part, edgecolor="white", linewidth=0.5)
        left += wide[part]
    plots.set_row_limits(axis, len(wide))
    axis.set_xlabel("Share of a cell's time, mean over the cells (%)")
    axis.tick_params(axis="y", labelsize=8)
    axis.grid(visible=False, axis="y")
    axis.legend(loc="lower right", frameon=True, fontsize=8)
    return figure
