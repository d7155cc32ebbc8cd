"""Draw what warps wait for between two instructions, as stacked bars of cells and their largest kernel classes."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import plots
from profzoo.figures.palette import OTHER_STATES, STATE_COLOURS, STATE_GROUPS

ORDER = 76
TITLE = "warp states"
INPUTS = ("warp_states",)
NEEDS = ("warp_states",)
CAPTION = (
    "What warps do between two instructions, by ncu: for each cell, and below it for the kernel classes with at least "
    "a tenth of its GPU time. The parts of a bar add up to a warp's whole time; the number on the right is this time, "
    "in cycles per instruction. Similar states are together; tables/warp_states.csv has each of them. `counted` is the "
    "share of the GPU time in launches that this is known of."
)

NOT_COLLECTED = "Warp states were not collected: ncu='{set: stalls}', or charts, collects them"


def draw(warp_states: pd.DataFrame) -> Figure:
    """Draw one bar per cell and large class.

    warp_states: the table `warp_states`, one row per cell, class and state; columns used: model, phase, level, class,
    total_ns, state, cycles, share, counted_share.
    """
    plots.set_style()
    if warp_states.empty:
        return plots.draw_nothing(NOT_COLLECTED)
    rows = plots.label_groups(warp_states)
    rows = rows.assign(group=rows["state"].map(STATE_GROUPS).fillna(OTHER_STATES))
    order = list(dict.fromkeys(rows["row"]))
    shares = rows.pivot_table(index="row", columns="group", values="share", aggfunc="sum", fill_value=0.0)
    cycles = rows.groupby("row")["cycles"].sum().reindex(order)
    width = plots.figure_width(rows["name"].to_list(), 7.5, 10)
    figure, axis = plt.subplots(figsize=(width, plots.figure_height(len(order)) + 0.5))
    totals = [formatting.number(count) for count in cycles]
    plots.draw_stacked_bars(axis, shares.reindex(order) * 100, STATE_COLOURS, totals)
    plots.name_groups(axis, rows)
    axis.set_xlabel("Part of a warp's time (%); right: cycles per instruction")
    return figure
