"""Draw counted over needed operations by type of layer, which shows padding, FFT, Winograd or repeated work."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.figures import palette, plots

ORDER = 65
TITLE = "counted and required operations"
INPUTS = ("layers",)
NEEDS = ("layer_counters",)
CAPTION = (
    "Floating point operations counted by ncu over those that the operators' input shapes call for. Each point "
    "is a layer, and its area shows the layer's time. Right of 1, tiles are padded or work is repeated; left of 1, a "
    "convolution needs fewer operations, by FFT or Winograd's method. Only layers whose operators are all known and "
    "counted are shown."
)

# Number of layer types to show, those that take the most time.
TYPES = 16
# Number of different areas of points.
SIZES = 12
# Directions with colour and place in the row; those of a step that generates take the places of others.
DIRECTIONS = {"forward": -0.2, "backward": 0.2, "recompute": 0.0, "prefill": -0.2, "decode": 0.2}


def draw(layers: pd.DataFrame) -> Figure:
    """Draw one row per type of layer, and one point per layer and direction.

    layers: the table `layers`, one row per cell, layer and direction; columns used: type, direction, total_ns,
    self_ns, simt_flop, tensor_flop, needed_flop, needed_share, counted_share.
    """
    plots.set_style()
    known = (layers["needed_share"] > 0.95) & (layers["counted_share"] > 0.95) & (layers["needed_flop"] > 0)
    own = layers[known & (layers["self_ns"] >= 0.99 * layers["total_ns"]) & (layers["type"] != "")]
    own = own.assign(ratio=(own["simt_flop"] + own["tensor_flop"]) / own["needed_flop"])
    own = own[own["ratio"] > 0]
    if own.empty:
        return plots.draw_nothing(
            "No layer's operations were both counted and known: set ncu.set to roofline, and tool to torch"
        )
    order = own.groupby("type")["total_ns"].sum().nlargest(TYPES).index.tolist()
    figure, axis = plt.subplots(figsize=(9, plots.figure_height(len(order))))
    largest = own["total_ns"].max()
    for direction, offset in DIRECTIONS.items():
        mine = own[(own["direction"] == direction) & own["type"].isin(order)]
        rows = mine["type"].map({name: place for place, name in enumerate(order)}) + offset
        # Points get one of few sizes, because a marker per point would make the SVG large.
        sizes = (mine["total_ns"] / largest * SIZES).round()
        for number, (size, places) in enumerate(mine.groupby(sizes, sort=False).groups.items()):
            axis.scatter(mine["ratio"][places], rows[places], s=8 + 220 * size / SIZES, alpha=0.7, edgecolor="white",
                         linewidth=0.4, color=palette.PART_COLOURS[direction],
                         label=None if number else direction)  # fmt: skip
    axis.axvline(1, color="#444444", linewidth=1)
    axis.set(xscale="log", xlabel="Operations, counted / required by the shapes")
    least, most = own["ratio"].min(), own["ratio"].max()
    ticks = [one for one in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 64) if min(least, 0.5) / 2 <= one <= max(most, 2) * 2]
    axis.set_xticks(ticks, [formatting.tick(one) for one in ticks])
    axis.minorticks_off()
    axis.set_yticks(np.arange(len(order)), order)
    plots.set_row_limits(axis, len(order))
    drawn = axis.get_legend_handles_labels()[1]
    # Points of the legend have one size, because sizes in the figure mean times.
    handles = [
        plt.Line2D([], [], marker="o", linestyle="", color=palette.PART_COLOURS[name], label=name) for name in drawn
    ]
    axis.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False)
    return figure
