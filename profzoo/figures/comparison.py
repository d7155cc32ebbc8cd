"""Draw which cells a candidate makes faster or slower: the gain with its interval, one row per cell."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from profzoo.compare import numerics
from profzoo.figures import palette, plots
from profzoo.formatting import fixed, format_ns, tick
from profzoo.statistics import speedup

ORDER = 1
TITLE = "comparison"
INPUTS = ("compare",)
NEEDS = ("compare",)
CAPTION = (
    "The gain of each candidate: the reference side's time per step over the candidate's (per sample where steps of "
    "the two sides have different numbers of samples), with its 95 % confidence interval over processes. Right of the "
    "band the candidate is faster; within the band the two are equivalent. A cross is faster, but computes something "
    "else. A hollow point is undecided; a point without a line was measured in one process."
)

# Colour and marker of each outcome, in the legend's order. Outcomes also differ in lightness and shape.
LOOKS = {
    speedup.FASTER: (palette.LESS, ">"),
    speedup.EQUIVALENT: (palette.SAME, "s"),
    speedup.SLOWER: (palette.MORE, "<"),
    speedup.UNDECIDED: (palette.UNDECIDED, "o"),
    numerics.DIFFERENT: (palette.MORE, "X"),
}
# Gains below and above 1 that may be ticks of the axis, the nearest first, and the largest number of ticks.
BELOW = (0.98, 0.95, 0.9, 0.8, 0.67, 0.5, 0.33, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001)
ABOVE = (1.02, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)
MOST_TICKS = 7
# Number of panels side by side at which text stays legible on a page.
ACROSS = 2
# Factor beyond all gains at which intervals are cut off; intervals from two processes can be very wide.
WIDEST = 2.0


def draw(compare: pd.DataFrame) -> Figure:
    """Draw one panel per candidate and one row per cell; cells that the first candidate speeds up most are on top.

    compare: the table `compare`, one row per cell and candidate, with the ratio of times, its interval and outcome.
    """
    plots.set_style()
    if compare.empty:
        return plots.draw_nothing("No cell was compared")
    table = compare.assign(
        cell=plots.label_cells(compare),
        gain=1 / compare["ratio"],
        gain_low=1 / compare["ratio_high"],
        gain_high=1 / compare["ratio_low"],
    )
    candidates = list(dict.fromkeys(table["candidate"]))
    order = table.groupby("cell")["gain"].first().sort_values(ascending=False, kind="stable").index.to_list()
    across = min(len(candidates), ACROSS)
    down = -(-len(candidates) // across)
    least = 3.2 + 5.4 * across
    size = (plots.figure_width(order, least - 1.8, least), down * (plots.figure_height(len(order)) + 0.3))
    figure, axes = plt.subplots(down, across, figsize=size, sharey=True, sharex=True, squeeze=False)
    for axis, candidate in zip(axes.flat, candidates, strict=False):
        rows = table[table["candidate"] == candidate]
        _draw_panel(axis, rows, [order.index(cell) for cell in rows["cell"]])
        axis.set_title(f"{candidate} against {rows['baseline'].iloc[0]}", fontsize=11)
    for axis in axes.flat[len(candidates) :]:
        axis.set_axis_off()
    for place in range(across):
        # Only the lowest panel of a column that is not empty gets an axis label.
        lowest = axes.flat[max(range(place, len(candidates), across))]
        lowest.set_xlabel(f"Gain: time per {' or '.join(dict.fromkeys(table['per']))}, reference side / candidate")
        lowest.xaxis.set_tick_params(labelbottom=True)
    axes[0][0].set_yticks(range(len(order)), order)
    plots.set_row_limits(axes[0][0], len(order))
    _set_scale(axes[0][0], table)
    counts = table["verdict"].value_counts()
    handles = [plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{verdict} ({counts[verdict]})",
                          markerfacecolor=_marker_face(verdict, colour))
               for verdict, (colour, marker) in LOOKS.items() if verdict in counts]  # fmt: skip
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False, handletextpad=0.2)
    # An empty title makes room for the legend of all panels.
    figure.suptitle(" ", fontsize=11)
    return figure


def _draw_panel(axis: Axes, rows: pd.DataFrame, places: list[int]) -> None:
    margin = float(rows["margin"].iloc[0])
    axis.axvspan(1 / (1 + margin), 1 + margin, color=palette.SAME, alpha=0.13, linewidth=0, zorder=0)
    axis.axvline(1, color="#444444", linewidth=0.8, zorder=1)
    for place, row in zip(places, rows.to_dict("records"), strict=True):
        colour, marker = LOOKS[row["verdict"]]
        if pd.notna(row["gain_low"]):
            axis.plot([row["gain_low"], row["gain_high"]], [place, place], color=colour, linewidth=2, zorder=2)
        axis.plot(row["gain"], place, marker=marker, markersize=6.5, color=colour, zorder=3,
                  markerfacecolor=_marker_face(row["verdict"], colour))  # fmt: skip
        said = f"{fixed(row['gain'], 1, 3)}×   {format_ns(row['baseline_ns'])} → {format_ns(row['candidate_ns'])}"
        said += " per sample" if row["per"] == "sample" else ""
        axis.text(1.01, place, said + ("   unsteady" if row["unsteady"] else ""), va="center", fontsize=8,
                  color="#333333", transform=axis.get_yaxis_transform())  # fmt: skip


def _marker_face(verdict: str, colour: str) -> str:
    return "white" if verdict == speedup.UNDECIDED else colour


def _set_scale(axis: Axes, table: pd.DataFrame) -> None:
    """Set a logarithmic axis with round ticks that covers gains and intervals, up to WIDEST beyond the gains."""
    margin = float(table["margin"].max())
    least, most = table["gain"].min() / WIDEST, table["gain"].max() * WIDEST
    known = np.concatenate([table[name].dropna().clip(least, most) for name in ("gain", "gain_low", "gain_high")])
    low, high = min(known.min(), 1 / (1 + 2 * margin)), max(known.max(), 1 + 2 * margin)
    room = (high / low) ** 0.04
    axis.set_xscale("log")
    axis.set_xlim(low / room, high * room)
    axis.xaxis.set_major_locator(FixedLocator(choose_ticks(low / room, high * room)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(tick))


def choose_ticks(low: float, high: float) -> list[float]:
    """Return ticks between two gains whose labels do not overlap; 1 is always among them.

    >>> choose_ticks(0.45, 1.3)
    [0.5, 0.67, 0.8, 1, 1.25]
    """
    apart = np.log(high / low) / MOST_TICKS
    found = [1.0]
    for side in (BELOW, ABOVE):
        last = 1.0
        for one in side:
            if low <= one <= high and abs(np.log(one / last)) >= apart:
                found.append(one)
                last = one
    return [one if one % 1 else int(one) for one in sorted(found)]
