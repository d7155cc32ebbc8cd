"""Draw how much each profiler slows a step down, compared with the unprofiled baseline."""

from itertools import cycle

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo import tools
from profzoo.figures import plots
from profzoo.figures.palette import TOOL_COLOURS

ORDER = 100
TITLE = "profiler overhead"
INPUTS = ("agreement",)
NEEDS = ("trace",)
CAPTION = "Time per step under each profiler over the unprofiled time."

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
# Marker and colour of each tool, in the order of the tools.
MARKERS = tuple(zip("oD^s", TOOL_COLOURS, strict=True))


def draw(agreement: pd.DataFrame) -> Figure:
    """Draw one point per cell and tool: the step time under the tool over the unprofiled step time.

    agreement: the table `agreement`, one row per cell; columns used: model, phase, {tool}_slowdown.
    """
    plots.set_style()
    cells = plots.label_cells(agreement)
    figure, axis = plt.subplots(figsize=(plots.figure_width(cells, 6.0, 8), plots.figure_height(len(cells))))
    for tool, (marker, colour) in zip(tools.activities(), cycle(MARKERS), strict=False):
        if (column := f"{tool}_slowdown") in agreement:
            axis.scatter(agreement[column], cells, marker=marker, s=50, color=colour, label=tool, zorder=3)
    axis.axvline(1, color="#444444", linewidth=1, linestyle="--")
    plots.set_row_limits(axis, len(cells))
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlim(min(0.5, axis.get_xlim()[0]), max(4, axis.get_xlim()[1]))
    axis.set_xlabel("Time per step under the profiler / without (1 = no slowdown)")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
    return figure
