"""Draws how many kernels a step launches, and what share of it the GPU waits for launches."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from workflow.scripts.lib import plots, verdicts
from workflow.scripts.lib.files import reported

# Names only the cells that wait most, as the others lie close together.
NAMED = 12


def draw(steps: pd.DataFrame) -> Figure:
    """From the table of steps: a point a cell, launches against the share of the step that launching idles the GPU."""
    plots.style()
    if steps.empty or steps["launches"].sum() == 0:
        return plots.nothing("No kernel was traced: nsys sees them on a GPU")
    shares = verdicts.shares(steps)
    waiting = shares[[f"idle_{cause}" for cause in verdicts.LAUNCHING]].sum(axis=1) * 100
    figure, axis = plt.subplots(figsize=(9, 6))
    texts = []
    for phase, colour in plots.PHASE_COLOURS.items():
        mine = steps["phase"] == phase
        marker = "o" if phase == "train" else "^"
        axis.scatter(steps["launches"][mine], waiting[mine], color=colour, marker=marker, s=36, label=phase, zorder=3)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("Kernel launches a step")
    axis.set_ylabel("Step in which the GPU waits for launches (%)")
    for index in waiting.nlargest(NAMED).index:
        texts.append((steps["launches"][index], waiting[index], f"{steps['model'][index]} {steps['phase'][index]}"))
    plots.name_points(axis, texts)
    axis.legend(loc="upper left", frameon=False)
    return figure


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        table = pd.read_csv(snakemake.input.table, low_memory=False)
        plots.save(draw(table), snakemake.output, plots.note(snakemake.input.cells))
