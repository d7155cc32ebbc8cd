"""Draws the kernels (on a CPU: operators) that take most of the time, each split by cell."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from workflow.scripts.figure_ranges import preferred
from workflow.scripts.lib import plots
from workflow.scripts.lib.files import reported
from workflow.scripts.lib.ncu_tables import function_name

WIDEST = 54


def short(name: str) -> str:
    """The kernel's bare name, cut in the middle where it is too long for a label."""
    name = name if "::" in name and "(" not in name else function_name(name)
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 21]}...{name[-18:]}"


def draw(activity: pd.DataFrame, top: int) -> Figure:
    """From the table of activity: the largest by mean share of a cell's time, so that no large model outweighs all."""
    plots.style()
    chosen = preferred(activity[activity["tool"] != "ncu"]) if (activity["tool"] != "ncu").any() else activity
    chosen = chosen.assign(cell=plots.label(chosen), name=chosen["name"].map(short))
    cells = list(dict.fromkeys(chosen["cell"]))
    wide = chosen.pivot_table(index="name", columns="cell", values="share", aggfunc="sum").fillna(0) / len(cells) * 100
    wide = wide.loc[wide.sum(axis=1).nlargest(top).index, cells]
    figure, axis = plt.subplots(figsize=(10, plots.height(len(wide))))
    colours = (
        sns.color_palette("colorblind", len(cells)) if len(cells) <= 10 else sns.color_palette("viridis", len(cells))
    )
    left = pd.Series(0.0, index=wide.index)
    for cell, colour in zip(cells, colours, strict=True):
        axis.barh(wide.index, wide[cell], left=left, color=colour, label=cell, edgecolor="white", linewidth=0.5)
        left += wide[cell]
    axis.invert_yaxis()
    axis.set_xlabel("Share of a cell's time, mean over the cells (%)")
    axis.tick_params(axis="y", labelsize=8)
    axis.grid(visible=False, axis="y")
    axis.legend(loc="lower right", frameon=True, fontsize=8, ncols=1 + len(cells) // 12)
    return figure


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        figure = draw(pd.read_csv(snakemake.input.activity), snakemake.params.top)
        plots.save(figure, snakemake.output, plots.note(snakemake.input.cells))
