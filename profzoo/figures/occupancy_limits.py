"""Draw what limits the occupancy of each cell's kernels: the share of its GPU time by limiter, as stacked bars."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import plots
from profzoo.figures.palette import LIMITER_COLOURS

ORDER = 82
TITLE = "what limits occupancy"
INPUTS = ("occupancy",)
NEEDS = ("occupancy",)
CAPTION = (
    "Counted GPU time by what limits the theoretical occupancy of the kernels: the registers of their threads, the "
    "shared memory or the warps of their blocks, or the number of blocks. Nothing limits kernels that fill an SM with "
    "warps. The numbers on the right are the mean theoretical occupancy, weighted by time, and what it would be if "
    "each kernel had the best one of three changes: fewer registers, less shared memory or another block size. "
    "tables/occupancy.csv says for each launch configuration what each of them would give."
)

NOTHING, SEVERAL = "nothing", "several"
# Occupancy with each of the changes.
CHANGED = ["registers_next_pct", "shared_next_pct", "threads_best_pct"]
NOT_COLLECTED = (
    "The occupancy over a step is not known: ncu counted no launch (tool=ncu,nsys collects occupancy),\n"
    "or only some launches, of which nothing says for how many others they stand"
)


def draw(occupancy: pd.DataFrame) -> Figure:
    """Draw one bar per cell.

    occupancy: the table `occupancy`, one row per cell and launch configuration; columns used: model, phase, total_ns,
    limiter, theoretical_pct, registers_next_pct, shared_next_pct, threads_best_pct.
    """
    plots.set_style()
    if occupancy.empty or not occupancy["total_ns"].sum() > 0:
        return plots.draw_nothing(NOT_COLLECTED)
    rows = occupancy.assign(cell=plots.label_cells(occupancy), part=occupancy["limiter"].map(name_part))
    rows.loc[(rows["part"] == NOTHING) & (rows["theoretical_pct"] < 99.9), "part"] = "unknown"
    order = list(dict.fromkeys(rows["cell"]))
    times = rows.pivot_table(index="cell", columns="part", values="total_ns", aggfunc="sum", fill_value=0.0)
    shares = times.div(times.sum(axis=1), axis=0).reindex(order) * 100
    rows["changed_pct"] = rows[["theoretical_pct", *CHANGED]].astype("float64").max(axis=1)
    means, changed = (plots.weighted_means(rows, name, "cell") for name in ("theoretical_pct", "changed_pct"))
    figure, axis = plt.subplots(figsize=(plots.figure_width(order, 7.5, 9), plots.figure_height(len(order)) + 0.3))
    totals = [format_change(means[cell], changed[cell]) for cell in order]
    plots.draw_stacked_bars(axis, shares, LIMITER_COLOURS, totals)
    axis.set_xlim(0, 115)
    axis.set_yticks(range(len(order)), order)
    axis.set_xlabel("Part of the GPU time that ncu counted (%); right: theoretical occupancy, now → changed")
    return figure


def format_change(now: float, changed: float) -> str:
    """Format a mean occupancy in %, and what it would be with changes where that is more.

    >>> format_change(62.5, 87.5), format_change(100, 100)
    ('62 → 88 %', '100 %')
    """
    return f"{now:.0f} %" if round(changed) <= round(now) else f"{now:.0f} → {changed:.0f} %"


def name_part(limiter: str) -> str:
    """Return the part of a bar to which a limiter belongs.

    >>> name_part("registers"), name_part(""), name_part("registers + shared memory")
    ('registers', 'nothing', 'several')
    """
    return SEVERAL if "+" in limiter else limiter or NOTHING
