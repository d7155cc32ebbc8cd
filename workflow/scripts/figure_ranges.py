"""Draws where the step goes: time by part of the step, stacked, cell by cell."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from workflow.scripts.lib import plots, text
from workflow.scripts.lib.files import reported


def preferred(table: pd.DataFrame) -> pd.DataFrame:
    """One tool a cell: nsys where it traced the cell, else torch."""
    first = table.groupby(["model", "phase"])["tool"].transform("min")
    return table[table["tool"] == first]


def draw(ranges: pd.DataFrame) -> Figure:
    """From the table of ranges: a bar a cell, each part's share of its time."""
    plots.style()
    chosen = preferred(ranges)
    chosen = chosen.assign(cell=plots.label(chosen), range=chosen["range"].fillna("").replace("", "outside"))
    order = list(dict.fromkeys(chosen["cell"]))
    wide = (
        chosen.pivot_table(index="cell", columns="range", values="ns_per_step", aggfunc="sum").reindex(order).fillna(0)
    )
    share = wide.div(wide.sum(axis=1), axis=0) * 100
    figure, axis = plt.subplots(figsize=(9, plots.height(len(order))))
    left = pd.Series(0.0, index=order)
    for part, colour in plots.PART_COLOURS.items():
        if part not in share:
            continue
        axis.barh(
            order,
            share[part],
            left=left,
            color=colour,
            label=part,
            edgecolor="white",
            linewidth=0.6,
            height=0.7,
        )
        for row, (start, width) in enumerate(zip(left, share[part], strict=True)):
            if width >= 7:
                axis.text(start + width / 2, row, f"{width:.0f} %", ha="center", va="center", fontsize=8,
                          color="white" if part in ("backward", "optimizer") else "black")  # fmt: skip
        left += share[part]
    for row, total in enumerate(wide.sum(axis=1)):
        axis.text(101, row, text.duration(total), va="center", fontsize=8)
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    plots.rows(axis, len(order))
    clocks = {
        "gpu": "GPU time of the kernels launched in each part of the step (%)",
        "cpu": "CPU time of each part (%)",
    }
    axis.set_xlabel(" / ".join(clocks[clock] for clock in dict.fromkeys(chosen["clock"])))
    axis.grid(visible=False, axis="y")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=7, frameon=False, handlelength=1, columnspacing=1.2)
    return figure


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        plots.save(draw(pd.read_csv(snakemake.input.ranges)), snakemake.output, plots.note(snakemake.input.cells))
