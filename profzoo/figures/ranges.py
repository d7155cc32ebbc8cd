"""Draw the share of each part of the step in its time, as one stacked bar per cell."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.range_names import REST
from profzoo.tables.schemas import prefer_tool
from profzoo.tables.user_ranges import select_parts

ORDER = 90
TITLE = "parts of the step"
INPUTS = ("ranges",)
NEEDS = ("trace",)
CAPTION = (
    "Time per step by range. On a GPU, the time of the kernels that were launched within each range, on any thread; on "
    "a CPU, the time that the range took. Time outside all ranges is `other`. On the right is the sum, as the profiler "
    "saw it; without a profiler, a step takes the time in the table of cells."
)
CPU_CAPTION = (
    "Time per step by range. Time outside all ranges is `other`. On the right is the step under the profiler; without "
    "one, it takes the time in the table of cells."
)


def draw(ranges: pd.DataFrame) -> Figure:
    """Draw one bar per cell, with each part's share of the step's time.

    ranges: the table `ranges`, one row per cell, tool and range; columns used: model, phase, tool, range, clock,
    ns_per_step.
    """
    plots.set_style()
    chosen = prefer_tool(select_parts(ranges))
    chosen = chosen.assign(cell=plots.label_cells(chosen), range=chosen["range"].replace("", REST))
    order = list(dict.fromkeys(chosen["cell"]))
    wide = (
        chosen.pivot_table(index="cell", columns="range", values="ns_per_step", aggfunc="sum").reindex(order).fillna(0)
    )
    share = wide.div(wide.sum(axis=1), axis=0) * 100
    figure, axis = plt.subplots(figsize=(plots.figure_width(order, 7.0, 9), plots.figure_height(len(order))))
    plots.draw_stacked_bars(
        axis, share, palette.PART_COLOURS, [formatting.format_ns(total) for total in wide.sum(axis=1)]
    )
    clocks = {
        "gpu": "GPU time of the kernels launched in each part of the step (%); on the right, their time",
        "cpu": "CPU time of each part (%); on the right, the profiled step",
    }
    axis.set_xlabel(" / ".join(clocks[clock] for clock in dict.fromkeys(chosen["clock"])))
    return figure
