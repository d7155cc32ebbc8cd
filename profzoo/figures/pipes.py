"""Draw how busy the pipes of the SMs are in each cell and in its largest kernel classes, as a heat map."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import plots
from profzoo.tools.ncu.quantities import PIPE_NAMES

ORDER = 74
TITLE = "pipe utilisation"
INPUTS = ("pipes",)
NEEDS = ("pipes",)
CAPTION = (
    "How busy the pipes of the SMs are while an SM has warps, of their peak, by ncu: for each cell, and below it for "
    "the kernel classes with at least a tenth of its GPU time. Means over launches, weighted by active cycles. FMA "
    "computes in fp32, ALU on integers, XU special functions, LSU loads and stores. `counted` is the share of the GPU "
    "time in launches that this is known of."
)

NOT_COLLECTED = "Pipe utilisation was not collected: ncu='{set: compute}', or charts, collects it"


def draw(pipes: pd.DataFrame) -> Figure:
    """Draw one row per cell and large class, one column per pipe that any of them uses.

    pipes: the table `pipes`, one row per cell, class and pipe; columns used: model, phase, level, class, total_ns,
    pipe, busy_pct, counted_share.
    """
    plots.set_style()
    if pipes.empty:
        return plots.draw_nothing(NOT_COLLECTED)
    rows = plots.label_groups(pipes)
    table = rows.pivot_table(index="row", columns="pipe", values="busy_pct", aggfunc="first", sort=False)
    used = [pipe for pipe in PIPE_NAMES if pipe in table and table[pipe].max() >= 0.5]
    table = table[used or list(table.columns)].reindex(list(dict.fromkeys(rows["row"])))
    width = plots.figure_width(rows["name"].to_list(), 2.0 + 0.7 * len(table.columns), 9)
    figure, axis = plt.subplots(figsize=(width, plots.figure_height(len(table))))
    plots.draw_percent_map(axis, table, "Greens")
    plots.name_groups(axis, rows, 0.5)
    axis.set(xlabel="Share of the pipe's peak, while an SM has warps (%)", ylabel="")
    return figure
