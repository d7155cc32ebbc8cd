"""Draw the roofline: each cell's arithmetic intensity and rate, below the peaks that were measured on the GPU."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo.figures import plots

ORDER = 60
TITLE = "roofline"
INPUTS = ("roofline", "peaks")
NEEDS = ("roofline",)
CAPTION = (
    "Arithmetic intensity (counted operations per byte of DRAM traffic) against the rate while the GPU is busy. The "
    "roofs are the rates that PyTorch's own copies and matrix products reach on this GPU. Crosses are the intervals "
    "of estimated counters, which hold the true value in nine of ten cases. The cells furthest below their roof are "
    "named."
)

# Line styles of the arithmetic roofs; a roof is drawn if its peak was measured.
ROOFS = {"fp32": "-", "tf32": "--", "bf16": ":"}
# Roofs of products in 8 bits, drawn if a cell's variant has this name.
EIGHT_BIT_ROOFS = {"fp8": "-.", "int8": (0, (5, 1, 1, 1, 1, 1))}
# Numbers of cells with names: those farthest below their roofs, and those nearest to them.
FARTHEST, NEAREST = 12, 6


def draw(roofline: pd.DataFrame, peaks: pd.DataFrame) -> Figure:
    """Draw one point per cell.

    roofline: the table `roofline`; of its rows, those with level `cell`. Columns used: model, phase, intensity in
    flop/byte, flop_per_s, efficiency, and interval bounds. peaks: the measured peaks, with the columns peak (name)
    and rate (bytes/s or flop/s).
    """
    plots.set_style()
    rates = peaks.set_index("peak")["rate"]
    cells = roofline[(roofline["level"] == "cell") & (roofline["intensity"] > 0)].reset_index(drop=True)
    if cells.empty:
        return plots.draw_nothing("No operations and bytes were counted: set ncu.set to roofline")
    figure, axis = plt.subplots(figsize=(9.5, 6.5))
    intensity = np.logspace(np.log10(min(cells["intensity"].min() / 2, 1)), np.log10(cells["intensity"].max() * 4), 200)
    variants = {one for model in cells["model"] for one in model.partition("@")[2].split("+")}
    for name, line in {**ROOFS, **EIGHT_BIT_ROOFS}.items():
        if name in rates and (name in ROOFS or name in variants):
            roof = np.minimum(rates[name], intensity * rates["dram"]) / 1e12
            axis.plot(
                intensity, roof, color="#444444", linestyle=line, linewidth=1.2, label=f"{name} and DRAM, measured"
            )
    _draw_intervals(axis, cells)
    plots.draw_points_by_phase(axis, cells, cells["intensity"], cells["flop_per_s"] / 1e12, size=40)
    axis.set(xlabel="Operations per byte of DRAM traffic (flop/byte)",
             ylabel="Rate while the GPU is busy (Tflop/s)")  # fmt: skip
    plots.set_logarithmic(axis.xaxis, pd.Series(intensity))
    reached = [points.get_ydata() for points in axis.get_lines()]
    plots.set_logarithmic(axis.yaxis, pd.Series(np.concatenate([*reached, cells["flop_per_s"] / 1e12])))
    ranked = cells.sort_values("efficiency")
    extreme = pd.concat([ranked.iloc[:FARTHEST], ranked.iloc[FARTHEST:].iloc[-NEAREST:]])
    points = [(row.intensity, row.flop_per_s / 1e12, f"{row.model} {row.phase}") for row in extreme.itertuples()]
    plots.name_points(axis, points)
    axis.legend(loc="upper left", frameon=True, framealpha=1, edgecolor="none")
    return figure


def _draw_intervals(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw the intervals of estimated counters as a cross behind each cell's point."""
    sides = {
        name: [(cells[name] - cells[f"{name}_low"]).to_numpy(), (cells[f"{name}_high"] - cells[name]).to_numpy()]
        for name in ("intensity", "flop_per_s")
        if f"{name}_low" in cells
    }
    if len(sides) == 2:
        rate = cells["flop_per_s"] / 1e12
        across, along = np.nan_to_num(sides["intensity"]), np.nan_to_num(sides["flop_per_s"]) / 1e12
        axis.errorbar(
            cells["intensity"], rate, xerr=across, yerr=along, fmt="none", ecolor="#777777", elinewidth=1, zorder=1
        )
