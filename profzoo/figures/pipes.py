"""Draw how busy the pipes of the SMs are in each cell and in its largest kernel classes, as a heat map."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from profzoo.figures import plots
from profzoo.tools.ncu.chart_quantities import PIPE_NAMES

ORDER = 74
TITLE = "pipe utilisation"
INPUTS = ("pipes",)
NEEDS = ("pipes",)
CAPTION = (
    "How busy the pipes of the SMs are while an SM has warps, of their peak, by ncu: for each cell, and below it for "
    "the kernel classes with at least a tenth of its GPU time. Means over launches, weighted by active cycles. FMA "
    "computes in fp32, ALU on integers, XU special functions, LSU loads and stores."
)

NOT_COLLECTED = "Pipe utilisation was not collected: ncu='{set: compute}', or charts, collects it"


def draw(pipes: pd.DataFrame) -> Figure:
    """Draw one row per cell and large class, one column per pipe that any of them uses.

    pipes: the table `pipes`, one row per cell, class and pipe; columns used: model, phase, level, class, total_ns,
    pipe, busy_pct.
    """
    plots.set_style()
    if pipes.empty:
        return plots.draw_nothing(NOT_COLLECTED)
    rows = plots.label_groups(pipes)
    table = rows.pivot_table(index="row", columns="pipe", values="busy_pct", aggfunc="first", sort=False)
    used = [pipe for pipe in PIPE_NAMES if pipe in table and table[pipe].max() >= 0.5]
    table = table[used or list(table.columns)].reindex(list(dict.fromkeys(rows["row"])))
    figure, axis = plt.subplots(figsize=(9, plots.figure_height(len(table))))
    sns.heatmap(table, ax=axis, cmap="Greens", vmin=0, vmax=100, annot=True, fmt=".0f", annot_kws={"fontsize": 8},
                linewidths=0.5, cbar_kws={"label": "%", "shrink": 0.5}, yticklabels=True)  # fmt: skip
    for number in axis.texts:
        # The page gives seaborn's dark grey the theme's text colour, but the map is pale in every theme.
        if number.get_color() == ".15":
            number.set_color("black")
    axis.set(xlabel="Share of the pipe's peak, while an SM has warps (%)", ylabel="")
    axis.tick_params(axis="x", rotation=0)
    return figure
