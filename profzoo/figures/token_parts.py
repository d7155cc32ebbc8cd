"""Draw where the time of a token after the first goes: what its bytes need, and what comes beside it."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.range_names import DECODE
from profzoo.tables.tokens import list_parts

ORDER = 14
TITLE = "where the time of a token goes"
INPUTS = ("tokens",)
NEEDS = ("tokens",)
CAPTION = (
    "The time of each token after the first without a profiler. Green is what weights, cached keys and values, and "
    "activations need at the measured bandwidth of DRAM. The rest is told by launch: arithmetic that takes longer, "
    "kernels below the roof, bytes that need not move, small kernels, of which one between two products is needed, the "
    "choice of the token, waits of the host for results, and other idle time between launches, up to 2 µs each (gaps) "
    "and beyond (host)."
)


def draw(tokens: pd.DataFrame) -> Figure:
    """Draw one bar per cell.

    tokens: the table `tokens`; columns used: model, phase, range, kind, and parts of the time.
    """
    plots.set_style()
    rows = tokens[tokens["range"] == DECODE]
    if rows.empty:
        return plots.draw_nothing("No cell has generated tokens on a GPU with measured peaks")
    cells = rows.drop_duplicates(["model", "phase"])
    parts = pd.DataFrame([list_parts(own) for _, own in rows.groupby(["model", "phase"], sort=False)])
    parts.index = plots.label_cells(cells).to_list()
    whole = parts.sum(axis=1)
    shares = parts.clip(lower=0).div(whole, axis=0) * 100
    figure, axis = plt.subplots(figsize=(plots.figure_width(shares.index, 7.5, 10), plots.figure_height(len(shares))))
    plots.draw_stacked_bars(axis, shares, palette.TOKEN_COLOURS, [formatting.format_ns(ns) for ns in whole])
    axis.set_xlabel("Time of a token after the first (%); on the right, the time")
    return figure
