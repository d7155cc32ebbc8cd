"""Draws where an unprofiled step goes: GPU busy, copying, communicating, or idle and waiting for what."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from workflow.scripts.lib import plots, step_shares, text


def draw(steps: pd.DataFrame) -> Figure:
    """From the table of steps: a bar a cell. Where it ran in several processes, the mean of them."""
    plots.style()
    if steps.empty:
        return plots.nothing("No step was traced by nsys")
    shares = step_shares.shares(steps).groupby(steps[["model", "phase"]].apply(tuple, axis=1), sort=False).mean() * 100
    cells = steps.drop_duplicates(["model", "phase"])
    shares.index = plots.label(cells).to_list()
    shares = shares.rename(columns=lambda name: name.replace("idle_", "idle: "))
    figure, axis = plt.subplots(figsize=(10, plots.height(len(shares))))
    plots.stacked(axis, shares, plots.STEP_COLOURS, [text.duration(ns) for ns in cells["step_ns"]])
    axis.set_xlabel("Step without profiler; idle time by what the GPU waits for, as nsys saw it (%)")
    return figure


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    plots.run(snakemake, snakemake.input.table, draw)
