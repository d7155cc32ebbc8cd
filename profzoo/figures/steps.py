"""Draw how the time of an unprofiled step is divided into busy GPU time and idle time by its cause."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.tables import cell_tables

ORDER = 20
TITLE = "where the time of a step goes"
INPUTS = ("steps",)
NEEDS = ("steps",)
CAPTION = (
    "Where the time of an unprofiled step goes. Busy time is measured: kernels, copies within the GPU, transfers to "
    "and from the host, communication. Waiting and idle time is split by the causes that nsys saw: other processes, "
    "the input pipeline, a synchronisation and the empty queue after it, launch latency, the CPU in a launching call, "
    "or other code on the CPU."
)

IMPORTED_CAPTION = (
    "Where the time of a step goes under the tool of its report, which makes steps longer. Busy time is measured: "
    "kernels, copies within the GPU, transfers to and from the host, communication. Waiting and idle time is split by "
    "the causes that the report shows: other processes, the input pipeline, another GPU of the process, a "
    "synchronisation and the empty queue after it, launch latency, the CPU in a launching call, or other code on the "
    "CPU."
)


def draw(steps: pd.DataFrame) -> Figure:
    """Draw one bar per cell, the mean over its processes; the cells with the largest share of idle time are on top.

    steps: the table `steps`, one row per cell and process; columns used: model, phase, step_ns, and the parts of the
    step's time.
    """
    plots.set_style()
    if steps.empty:
        return plots.draw_nothing("No step was traced by nsys")
    shares = (
        cell_tables.step_shares(steps).groupby(steps[["model", "phase"]].apply(tuple, axis=1), sort=False).mean() * 100
    )
    cells = steps.drop_duplicates(["model", "phase"])
    shares.index = plots.label_cells(cells).to_list()
    took = pd.Series(cells["step_ns"].to_numpy(), shares.index)
    shares = shares.rename(columns=cell_tables.name_part)
    idle = shares[[name for name in shares if name.startswith("idle")]].sum(axis=1)
    shares = shares.loc[idle.sort_values(ascending=False, kind="stable").index]
    figure, axis = plt.subplots(figsize=(plots.figure_width(shares.index, 7.5, 10), plots.figure_height(len(shares))))
    plots.draw_stacked_bars(
        axis, shares, palette.STEP_COLOURS, [formatting.format_ns(ns) for ns in took.reindex(shares.index)]
    )
    axis.set_xlabel("Step without profiler; idle time by what the GPU waits for, as nsys saw it (%)")
    return figure
