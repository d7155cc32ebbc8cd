"""Draw the step as a tree of layers: box width shows time, and colour shows the roof that bounds the layer."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from profzoo import formatting
from profzoo.figures import plots
from profzoo.figures.palette import BOUND_COLOURS
from profzoo.figures.svg_tooltips import attach_titles

ORDER = 95
TITLE = "layers of the step"
INPUTS = ("layers",)
NEEDS = ("layers",)
CAPTION = (
    "GPU time per step by module, forward and backward separately (on a CPU, the operators' own time). The width of a "
    "box is its share of the time, and it stands below the module that contains it. Colours show which roof limits the "
    "counted work; layers without counters are pale. If there are many cells, those with the longest steps are shown."
)
CPU_CAPTION = (
    "The operators' own time per step by module, forward and backward separately. The width of a box is its share of "
    "the time, and it stands below the module that contains it. If there are many cells, those with the longest steps "
    "are shown."
)

BOUND_NAMES = {"dram": "DRAM", "l2": "L2", "simt": "SIMT arithmetic", "tensor": "tensor cores", "": "not counted"}
# Number of cells to draw, and depth of modules below the part of the step.
CELLS, DEPTH = 10, 4
STEP, ROOT = "(step)", "(root)"
# Alternating colours of the parts of the step.
PART_COLOURS = ("#555555", "#6b6b6b")
# Height of a row and of the gap between cells, in inches.
ROW, BETWEEN = 0.27, 0.55
# As shares of the step: the least width of a box with a frame, and the width of one character of a name.
FRAMED, CHARACTER = 0.002, 0.0085


def draw(layers: pd.DataFrame) -> Figure:
    """Draw one tree per cell, with the parts of the step on top.

    layers: the table `layers`, one row per cell, module and direction; columns used: model, phase, module, parent,
    direction, total_ns, bound.
    """
    plots.set_style()
    totals = layers[layers["module"] == STEP].groupby(["model", "phase"], sort=False)["total_ns"].sum()
    if not totals.sum() > 0:
        return plots.draw_nothing("No launch has a known owner: collect with tool torch")
    chosen = totals.nlargest(CELLS).index
    shown = [cell for cell in totals.index if cell in chosen]
    figure, axes = plt.subplots(len(shown), 1, squeeze=False)
    rows = []
    for axis, cell in zip(axes[:, 0], shown, strict=True):
        mine = layers[(layers["model"] == cell[0]) & (layers["phase"] == cell[1])]
        rows.append(_draw_tree(axis, mine, totals[cell]))
        axis.set_title(f"{plots.label_cells(mine).iloc[0]}: {formatting.duration(totals[cell])} per step", fontsize=10)
    axes[0, 0].get_gridspec().set_height_ratios(rows)
    figure.set_size_inches(11, 0.4 + sum(ROW * count + BETWEEN for count in rows))
    # Without counters, as on a CPU, the colours mean nothing.
    found = [name for name in BOUND_COLOURS if name in set(layers["bound"])] if layers["bound"].any() else []
    handles = [Patch(facecolor=BOUND_COLOURS[name], edgecolor="white", label=BOUND_NAMES[name]) for name in found]
    inch = 1 / figure.get_size_inches()[1]
    if handles:
        figure.legend(handles=handles, loc="upper right", bbox_to_anchor=(0.99, 1 - 0.02 * inch), ncols=len(handles),
                      frameon=False, fontsize=9)  # fmt: skip
    return figure


def _draw_tree(axis: Axes, layers: pd.DataFrame, total: float) -> int:
    """Draw the boxes of one cell, and return their number of rows; total: GPU time of the step in ns."""
    children = dict(list(layers.groupby("parent", sort=False)))
    place = 0.0
    deepest = 1
    for number, (_, part) in enumerate(layers[layers["module"] == STEP].iterrows()):
        _draw_box(axis, part["direction"], PART_COLOURS[number % 2], place, part["total_ns"] / total, 0)
        deepest = max(deepest, _draw_children(axis, children, STEP, part["direction"], place, total, 1))
        place += part["total_ns"] / total
    axis.set(xlim=(0, 1), ylim=(deepest, 0), yticks=[])
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"], fontsize=7)
    axis.tick_params(axis="x", length=2, pad=1)
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    return deepest


def _draw_children(
    axis: Axes, children: dict[str, pd.DataFrame], parent: str, direction: str, place: float, total: float, depth: int
) -> int:
    """Draw the layers inside a module in one direction, and return the number of rows down to the deepest one."""
    deepest = depth
    if depth > DEPTH or parent not in children:
        return deepest
    rows = children[parent]
    for row in rows[rows["direction"] == direction].to_dict("records"):
        width = row["total_ns"] / total
        # The network gets no row, because it fills nearly its whole part of the step; neither does the part itself.
        own = row["module"] not in (ROOT, f"({direction})")
        if own:
            name = row["module"] if row["module"].startswith("(") else row["module"].rpartition(".")[2]
            _draw_box(axis, name, BOUND_COLOURS.get(row["bound"], BOUND_COLOURS[""]), place, width, depth)
            deepest = max(deepest, depth + 1)
        found = _draw_children(axis, children, row["module"], direction, place, total, depth + own)
        deepest, place = max(deepest, found), place + width
    return deepest


def _draw_box(axis: Axes, name: str, colour: str, place: float, width: float, row: int) -> None:
    line = 0.6 if width > FRAMED else 0
    box = Rectangle((place, row), width, 0.94, facecolor=colour, edgecolor="white", linewidth=line)
    attach_titles(axis.add_patch(box), [f"{name}: {width:.1%}"])
    shown = _shorten_name(name, width)
    if shown:
        axis.text(
            place + width / 2, row + 0.48, shown, ha="center", va="center", fontsize=7, color=plots.text_colour(colour)
        )


def _shorten_name(name: str, width: float) -> str:
    """Return the name, shortened to fit into a box of this width."""
    room = int(width / CHARACTER)
    return name if len(name) <= room else f"{name[: room - 1]}…" if room >= 4 else ""
