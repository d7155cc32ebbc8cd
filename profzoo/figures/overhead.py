"""Draw how much each profiler slows a step down, compared with the unprofiled baseline."""

from itertools import cycle

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import tools
from profzoo.figures import plots
from profzoo.figures.palette import TOOL_COLOURS

ORDER = 100
TITLE = "profiler overhead"
INPUTS = ("agreement",)
NEEDS = ("trace",)
CAPTION = (
    "Time per step under each profiler over the unprofiled time, with the value of each tool on the right. The cells "
    "that a profiler slows down most are on top."
)

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
# Marker and colour of each tool, in the order of the tools.
MARKERS = tuple(zip("oD^s", TOOL_COLOURS, strict=True))
# Ratio of the largest to the smallest value up to which the axis is linear, and the least width of the axis.
LINEAR, LEAST = 4.0, 0.5
NOTHING = "No tool traced steps that the baseline timed too"


def draw(agreement: pd.DataFrame) -> Figure:
    """Draw one row per cell and one point per tool: the step time under the tool over the unprofiled step time.

    Cells without both, such as reports that were made elsewhere, are left out.

    agreement: the table `agreement`, one row per cell; columns used: model, phase, {tool}_slowdown.
    """
    plots.set_style()
    names = {tool: f"{tool}_slowdown" for tool in tools.activities() if f"{tool}_slowdown" in agreement}
    slowdowns = agreement[[*names.values()]].astype("float64").set_axis([*names], axis=1)
    slowdowns = slowdowns.set_axis(plots.label_cells(agreement)).dropna(axis=1, how="all")
    slowdowns = slowdowns.loc[slowdowns.max(axis=1).sort_values(ascending=False, kind="stable").index]
    if slowdowns.isna().all(axis=None):
        return plots.draw_nothing(NOTHING)
    cells = slowdowns.index
    figure, axis = plt.subplots(figsize=(plots.figure_width(cells, 6.5, 8), plots.figure_height(len(cells))))
    markers = dict(zip(names, cycle(MARKERS), strict=False))
    for tool in slowdowns:
        marker, colour = markers[tool]
        axis.scatter(slowdowns[tool], range(len(cells)), marker=marker, s=50, color=colour, label=tool, zorder=3)
    axis.axvline(1, color="#444444", linewidth=1, linestyle="--")
    axis.set_yticks(range(len(cells)), cells)
    plots.set_row_limits(axis, len(cells))
    _set_scale(axis, slowdowns)
    axis.set_xlabel("Time per step under the profiler / without (1 = no slowdown)")
    for place, row in enumerate(slowdowns.to_dict("records")):
        said = " · ".join(f"{tool} {value:.2f}×" for tool, value in row.items() if value == value) or "not known"
        axis.text(1.02, place, said, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(names), frameon=False)
    return figure


def _set_scale(axis: Axes, slowdowns: pd.DataFrame) -> None:
    """Set an axis from 1, or a smaller value, to the largest value; logarithmic where values are far apart."""
    values = pd.Series([*slowdowns.to_numpy().ravel(), 1.0]).dropna()
    low, high = values.min(), max(values.max(), values.min() + LEAST)
    if high / low > LINEAR:
        room = (high / low) ** 0.05
        axis.set_xlim(low / room, high * room)
        plots.set_logarithmic(axis.xaxis, values)
    else:
        axis.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
