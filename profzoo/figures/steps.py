"""Draws where an unprofiled step goes: GPU busy, copying, communicating, or idle and waiting for what."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.tables import step_shares

ORDER = 20
TITLE = "where the step goes"
INPUTS = ("steps",)
NEEDS = ("nsys",)
CAPTION = (
    "Where an unprofiled step goes. How long the GPU works is measured, with kernels, copies within it, transfers "
    "between it and the host, or communication; what it waits for is split as nsys saw it: other processes, the input "
    "pipeline, a synchronisation and what that leaves to catch up on, a launch that is on its way, the CPU in a "
    "launching call, or other code on the CPU."
)


def draw(steps: pd.DataFrame) -> Figure:
    """From the table of steps: a bar a cell, the idlest first. Where it ran in several processes, the mean of them."""
    plots.set_style()
    if steps.empty:
        return plots.draw_nothing("No step was traced by nsys")
    shares = (
        step_shares.step_shares(steps).groupby(steps[["model", "phase"]].apply(tuple, axis=1), sort=False).mean() * 100
    )
    cells = steps.drop_duplicates(["model", "phase"])
    shares.index = plots.label_cells(cells).to_list()
    took = pd.Series(cells["step_ns"].to_numpy(), shares.index)
    shares = shares.rename(columns=lambda name: name.replace("idle_", "idle: "))
    idle = shares[[name for name in shares if name.startswith("idle")]].sum(axis=1)
    shares = shares.loc[idle.sort_values(ascending=False, kind="stable").index]
    figure, axis = plt.subplots(figsize=(10, plots.figure_height(len(shares))))
    plots.draw_stacked_bars(
        axis, shares, palette.STEP_COLOURS, [formatting.duration(ns) for ns in took.reindex(shares.index)]
    )
    axis.set_xlabel("Step without profiler; idle time by what the GPU waits for, as nsys saw it (%)")
    return figure
