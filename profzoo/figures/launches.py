"""Draw the number of kernel launches per step against the share of the step in which the GPU waits for launches."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from profzoo.figures import plots
from profzoo.tables import cell_tables

ORDER = 40
TITLE = "launches"
INPUTS = ("steps",)
NEEDS = ("steps",)
CAPTION = (
    "Kernel launches per step, and the share of the step in which the GPU waits for launches (latency, launching "
    "calls, other code on the CPU). The cells that wait most are named."
)

# Number of named cells, those that wait most; the points of the others lie too close together for names.
NAMED = 12


def draw(steps: pd.DataFrame) -> Figure:
    """Draw one point per cell: launches per step, and the share of the step spent waiting for them in %.

    steps: the table `steps`, one row per cell and process; columns used: model, phase, launches, and the parts of
    the step's time.
    """
    plots.set_style()
    if steps.empty or steps["launches"].sum() == 0:
        return plots.draw_nothing("No kernel was traced: nsys sees them on a GPU")
    waiting = cell_tables.launch_wait_share(cell_tables.step_shares(steps)) * 100
    figure, axis = plt.subplots(figsize=(9, 6))
    plots.draw_points_by_phase(axis, steps, steps["launches"], waiting, size=36)
    plots.set_logarithmic(axis.xaxis, steps["launches"])
    # Points that lie on the axis are drawn whole; there is room for those of the largest shares.
    axis.set_ylim(0, max(1.05 * waiting.max(), 5))
    for points in axis.collections:
        points.set_clip_on(False)
    axis.margins(x=0.15)
    axis.set_xlabel("Kernel launches per step")
    axis.set_ylabel("Share of the step in which the GPU waits for launches (%)")
    names = steps["model"] + " " + steps["phase"]
    most = waiting.nlargest(NAMED).index
    plots.name_points(axis, [(steps["launches"][index], waiting[index], names[index]) for index in most])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(plots.PHASE_MARKERS), frameon=False)
    return figure
