"""Draw what a candidate changes in bytes, operations, hit rates and occupancy, as a map of cells and counters."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from profzoo.compare.counter_changes import CELL_LEVEL, SAME, UNDECIDED
from profzoo.compare.counter_quantities import COMPARED, PERCENT, WORDS
from profzoo.figures import palette, plots

ORDER = 3
TITLE = "what changed in counters"
INPUTS = ("compare", "compare_counters")
NEEDS = ("compare_counters",)
CAPTION = (
    "Bytes and operations of a step, and hit rates and occupancy, of the candidate against the reference side, by ncu: "
    "changes in percent, of rates in points. Coloured fields changed; `=` is the same within the margin, and `?` is "
    "undecided. tables/compare_counters.csv has the intervals, and the layers and kernels that changed."
)

# Change in percent, or in points, from which on a colour is darkest.
DARKEST = 50.0
NOTHING = "ncu counted no cell on both sides: docs/guides/faster.md says how to collect counters"


def draw(compare: pd.DataFrame, compare_counters: pd.DataFrame) -> Figure:
    """Draw one row per cell and candidate, in the order of the comparison.

    compare: the table `compare`, which only says where and when its sides were measured. compare_counters: the table
    `compare_counters`; columns used: model, phase, candidate, level, quantity, unit, baseline_value, delta, outcome.
    """
    plots.set_style()
    rows = compare_counters[compare_counters["level"] == CELL_LEVEL]
    if rows.empty:
        return plots.draw_nothing(NOTHING)
    several = rows["candidate"].nunique() > 1
    cell = plots.label_cells(rows) + (" · " + rows["candidate"] if several else "")
    relative = 100 * rows["delta"] / rows["baseline_value"].where(rows["baseline_value"] > 0)
    shown = rows.assign(cell=cell, change=relative.where(rows["unit"] != PERCENT, rows["delta"]))
    order, used = list(dict.fromkeys(cell)), [name for name in COMPARED if name in set(rows["quantity"])]
    changes, outcomes = (
        shown.pivot_table(index="cell", columns="quantity", values=name, aggfunc="first", dropna=False).reindex(
            index=order, columns=used
        )
        for name in ("change", "outcome")
    )
    width = plots.figure_width(order, 0.5 + 1.3 * len(used), 2.5 + 1.3 * len(used))
    figure, axis = plt.subplots(figsize=(width, plots.figure_height(len(order))))
    settled = outcomes.isin([SAME, UNDECIDED]) | outcomes.isna()
    colours = LinearSegmentedColormap.from_list("change", [palette.LESS, "#f6f6f6", palette.MORE])
    values = changes.where(~settled, 0.0).to_numpy(dtype=float)
    axis.pcolormesh(values, cmap=colours, vmin=-DARKEST, vmax=DARKEST, edgecolors="#dddddd", linewidth=0.5)
    for row, column in np.ndindex(changes.shape):
        value, outcome = changes.iloc[row, column], outcomes.iloc[row, column]
        dark = not settled.iloc[row, column] and abs(value) > 0.6 * DARKEST
        axis.text(column + 0.5, row + 0.5, _format_change(value, outcome, used[column]), ha="center", va="center",
                  fontsize=8, color="white" if dark else "black")  # fmt: skip
    axis.set_xticks(np.arange(len(used)) + 0.5, [WORDS[name].replace(" ", "\n") for name in used])
    plots.name_columns_on_top(axis, len(order))
    axis.set_yticks(np.arange(len(order)) + 0.5, order)
    axis.set(ylim=(len(order), 0), xlabel="Change of the candidate, in percent or points")
    axis.grid(visible=False)
    return figure


def _format_change(value: float, outcome: object, name: str) -> str:
    """Format a change with its outcome.

    >>> _format_change(12.34, "changed", "dram_bytes"), _format_change(0.4, "same", "l2_hit_pct")
    ('+12.3 %', '= +0.4')
    """
    if pd.isna(value):
        return "–"
    mark = {SAME: "= ", UNDECIDED: "? "}.get(str(outcome), "")
    return f"{mark}{value:+.1f}" + ("" if COMPARED[name].unit == PERCENT else " %")
