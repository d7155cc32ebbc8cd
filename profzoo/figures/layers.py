"""Draw the step as a tree of layers: box width shows time, colour the roof that bounds a layer, or its type."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.figures.palette import BOUND_COLOURS
from profzoo.figures.plots import attach_titles

ORDER = 95
TITLE = "layers of the step"
INPUTS = ("layers",)
NEEDS = ("layers",)
CAPTION = (
    "GPU time per step by module, forward and backward separately (on a CPU, the operators' own time). The width of a "
    "box is its share of the time, and it stands below the module that contains it. Colours show which roof limits the "
    "counted work; without counters, they show the type of a layer. If there are many cells, those with the "
    "longest steps are shown."
)
CPU_CAPTION = (
    "The operators' own time per step by module, forward and backward separately. The width of a box is its share of "
    "the time, and it stands below the module that contains it. Colours show the type of a layer. If there are "
    "many cells, those with the longest steps are shown."
)

BOUND_NAMES = {"dram": "DRAM", "l2": "L2", "simt": "SIMT arithmetic", "tensor": "tensor cores", "": "not counted"}
# Number of cells to draw, and depth of modules below the part of the step.
CELLS, DEPTH = 10, 4
STEP, ROOT = "(step)", "(root)"
# Alternating colours of the parts of the step.
PART_COLOURS = ("#555555", "#6b6b6b")
# Number of colours in a line of the legend.
ACROSS = 5
# Height of a row and of the gap between cells, in inches.
ROW, BETWEEN = 0.27, 0.55
# Number of types of layers with a colour of their own, those with the most time; names of the others in the legend.
TYPES = 8
OTHER_TYPES, OF_LAYERS = "other types", "contains layers"
# As shares of the step: the least width of a box with a frame, and the width of one character of a name.
FRAMED, CHARACTER = 0.002, 0.0085


def draw(layers: pd.DataFrame) -> Figure:
    """Draw one tree per cell, with the parts of the step on top.

    layers: the table `layers`, one row per cell, module and direction; columns used: model, phase, module, parent,
    direction, type, self_ns, total_ns, bound.
    """
    plots.set_style()
    totals = layers[layers["module"] == STEP].groupby(["model", "phase"], sort=False)["total_ns"].sum()
    if not totals.sum() > 0:
        return plots.draw_nothing("No launch has a known owner: collect with tool torch")
    chosen = totals.nlargest(CELLS).index
    shown = [cell for cell in totals.index if cell in chosen]
    layers, colours = _colour_layers(layers[pd.MultiIndex.from_frame(layers[["model", "phase"]]).isin(shown)])
    figure, axes = plt.subplots(len(shown), 1, squeeze=False)
    rows = []
    for axis, cell in zip(axes[:, 0], shown, strict=True):
        mine = layers[(layers["model"] == cell[0]) & (layers["phase"] == cell[1])]
        rows.append(_draw_tree(axis, mine, totals[cell]))
        axis.set_title(f"{plots.label_cells(mine).iloc[0]}: {formatting.format_ns(totals[cell])} per step", fontsize=10)
    axes[0, 0].get_gridspec().set_height_ratios(rows)
    for axis in axes[:-1, 0]:
        axis.tick_params(labelbottom=False)
    lines = -(-len(colours) // ACROSS)
    figure.set_size_inches(11, 0.4 + 0.2 * lines + sum(ROW * count + BETWEEN for count in rows))
    handles = [Patch(facecolor=colour, edgecolor="white", label=name) for name, colour in colours.items()]
    if handles:
        figure.legend(handles=handles, loc="upper left", ncols=ACROSS, frameon=False, fontsize=9)
        # An empty title makes room for the legend.
        figure.suptitle("\n".join([" "] * lines), fontsize=9)
    return figure


def _colour_layers(layers: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the layers with a column `colour`, and the meaning of each colour: roofs, or types without counters."""
    if layers["bound"].any():
        meant = {BOUND_NAMES[name]: BOUND_COLOURS[name] for name in BOUND_COLOURS if name in set(layers["bound"])}
        return layers.assign(colour=layers["bound"].map(BOUND_COLOURS).fillna(BOUND_COLOURS[""])), meant
    # Neither parts of the step, such as (optimizer), nor modules without a type are a type of layer.
    own = layers[(layers["self_ns"] > 0) & ~layers["module"].str.startswith("(")]
    times = own.groupby("type")["self_ns"].sum().drop("", errors="ignore").sort_values(ascending=False, kind="stable")
    types = dict(zip(times.index[:TYPES], palette.TYPE_CYCLE, strict=False))
    named = layers["type"].where(layers["type"].isin(types), OTHER_TYPES).where(layers["self_ns"] > 0, OF_LAYERS)
    meant = types | {OTHER_TYPES: palette.OTHER_TYPES, OF_LAYERS: BOUND_COLOURS[""]}
    # Without a known type, the colours tell nothing that the rows do not.
    shown = {name: meant[name] for name in meant if types and name in set(named)}
    return layers.assign(colour=named.map(meant)), shown


def _draw_tree(axis: Axes, layers: pd.DataFrame, total: float) -> int:
    """Draw the boxes of one cell, and return their number of rows; total: GPU time of the step in ns."""
    children: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in layers.to_dict("records"):
        children.setdefault((row["parent"], row["direction"]), []).append(row)
    place = 0.0
    deepest = 1
    for number, (_, part) in enumerate(layers[layers["module"] == STEP].iterrows()):
        names = [part["direction"]]
        _draw_box(axis, names, names[0], PART_COLOURS[number % 2], (place, 0, part["total_ns"] / total))
        deepest = max(deepest, _draw_children(axis, children, STEP, part["direction"], place, total, 1))
        place += part["total_ns"] / total
    axis.set(xlim=(0, 1), ylim=(deepest, 0), yticks=[])
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"], fontsize=7)
    axis.tick_params(axis="x", length=2, pad=1)
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    return deepest


def _draw_children(
    axis: Axes,
    children: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    parent: str,
    direction: str,
    place: float,
    total: float,
    depth: int,
) -> int:
    """Draw the layers inside a module in one direction, and return the number of rows down to the deepest one.

    children: rows of the cell's layers by parent and direction.
    """
    deepest = depth
    for row in children.get((parent, direction), ()) if depth <= DEPTH else ():
        width = row["total_ns"] / total
        # The network gets no row, because it fills nearly its whole part of the step; neither does the part itself.
        own = row["module"] not in (ROOT, f"({direction})")
        if own:
            names, whole = name_layer(row["module"], row["type"]), f"{row['module']} {row['type']}".strip()
            _draw_box(axis, names, whole, row["colour"], (place, depth, width))
            deepest = max(deepest, depth + 1)
        found = _draw_children(axis, children, row["module"], direction, place, total, depth + own)
        deepest, place = max(deepest, found), place + width
    return deepest


def _draw_box(axis: Axes, names: Sequence[str], whole: str, colour: str, at: tuple[float, float, float]) -> None:
    """Draw a box with the first of its names that fits; whole: its name in full. at: its place, row and width."""
    place, row, width = at
    line = 0.6 if width > FRAMED else 0
    box = Rectangle((place, row), width, 0.94, facecolor=colour, edgecolor="white", linewidth=line)
    attach_titles(axis.add_patch(box), [f"{whole}: {width:.1%}"])
    shown = _fit_name(names, width)
    if shown:
        axis.text(
            place + width / 2, row + 0.48, shown, ha="center", va="center", fontsize=7, color=plots.text_colour(colour)
        )


def name_layer(module: str, kind: str) -> list[str]:
    """Return names of a layer, the best first: the end of its path that begins with a word, then its type.

    >>> name_layer("layer1.0.conv1", "Conv2d"), name_layer("features.3.conv.0.1", "BatchNorm2d")
    (['conv1', 'Conv2d'], ['conv.0.1', 'BatchNorm2d'])
    >>> name_layer("0", "Linear"), name_layer("0", ""), name_layer("(loss)", "")
    (['Linear 0', 'Linear'], ['0'], ['(loss)'])
    """
    parts = module.split(".")
    words = [place for place, part in enumerate(parts) if not part.isdecimal()]
    name = ".".join(parts[words[-1] :]) if words else f"{kind} {module}".strip()
    return [name, kind] if kind else [name]


def _fit_name(names: Sequence[str], width: float) -> str:
    """Return the first name that fits into a box of this width, else the first one, shortened to fit."""
    room = int(width / CHARACTER)
    for name in names:
        if len(name) <= room:
            return name
    # Of many alike layers, such as features.12, the number tells them apart.
    word, _, number = names[0].rpartition(".")
    end = f"….{number}" if word and number.isdecimal() else "…"
    return f"{names[0][: room - len(end)]}{end}" if room >= len(end) + 3 else ""
