"""Draw how kernel classes and idle time make up the difference between reference side and candidate."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo.compare import contributions, numerics
from profzoo.figures import palette, plots
from profzoo.formatting import fixed, format_ns
from profzoo.kernels import short_names
from profzoo.statistics import speedup
from profzoo.tables import cell_tables
from profzoo.tables.schemas import CELL

ORDER = 2
TITLE = "where a difference lies"
INPUTS = ("compare", "compare_parts")
NEEDS = ("compare_parts",)
CAPTION = (
    "How the step time of the reference side becomes the candidate's, in the cells that differ most. Each kernel class "
    "and each cause of idle time adds or removes time, and together they make up the difference. The kernels that "
    "changed most are on the right."
)

LESS, MORE, REST = palette.LESS, palette.MORE, "#999999"
# Largest numbers of cells, of changes between the ends of a waterfall, and of kernels.
MOST_CELLS, MOST_STEPS, MOST_KERNELS = 6, 7, 5
# Changes below this share of all changes are not shown separately.
LEAST = 0.01
IDENTITY = [*CELL, *contributions.SIDES]


def draw(compare: pd.DataFrame, compare_parts: pd.DataFrame) -> Figure:
    """Draw, for each cell that differs most, a waterfall of its changes and the kernels that changed most.

    compare: one row per cell and candidate, with times in ns, ratio and outcome. compare_parts: one row per part of
    such a difference; columns used: level, name, range, change, delta_ns.
    """
    plots.set_style()
    differing = compare[compare["verdict"].isin([speedup.FASTER, speedup.SLOWER, numerics.DIFFERENT])]
    shown = [
        (row, sum_changes(seen), _choose_kernels(seen))
        for row in _choose_comparisons(differing)
        if len(seen := _select_rows(compare_parts, row))
    ]
    if not shown:
        return plots.draw_nothing("No cell was found faster or slower")
    # Each kernel needs one line for its name and one for its bar.
    heights = [max(len(rows) + 2, 1.8 * len(kernels)) + 2.4 for _, rows, kernels in shown]
    figure, axes = plt.subplots(len(shown), 2, figsize=(12, 0.5 + 0.29 * sum(heights)), squeeze=False,
                                height_ratios=heights, width_ratios=(3, 2))  # fmt: skip
    for (row, rows, kernels), (left, right) in zip(shown, axes, strict=True):
        _draw_waterfall(left, row, rows)
        _draw_kernels(right, kernels)
    return figure


def _choose_comparisons(differing: pd.DataFrame) -> list[dict]:
    """Return the rows whose ratios are farthest from 1: as many slower as faster ones, if there are; slowest first."""
    far = np.log(differing["ratio"]).abs()
    place = far.groupby(differing["verdict"]).rank(method="first", ascending=False)
    chosen = differing.assign(_place=place, _far=-far).sort_values(["_place", "_far"]).head(MOST_CELLS)
    return chosen.sort_values("ratio", ascending=False, kind="stable").to_dict("records")


def _select_rows(table: pd.DataFrame, row: dict) -> pd.DataFrame:
    return table[(table[IDENTITY] == [row[key] for key in IDENTITY]).all(axis=1)]


def sum_changes(seen: pd.DataFrame) -> pd.Series:
    """Return the changes in step time in ns, by kernel class or other part of the step, largest first.

    Changes after the first MOST_STEPS, and changes below LEAST of the sum, are added up as `all others`.

    seen: the rows of one comparison in the table `compare_parts`.
    """
    classes = seen[seen["level"] == contributions.CLASS_LEVEL].set_index("name")["delta_ns"]
    others = seen[seen["level"] == contributions.PART_LEVEL].set_index("name")["delta_ns"]
    if len(classes):
        others = others.drop(["kernels", "communication"], errors="ignore")
    classes.index = [f"kernels: {name}" for name in classes.index]
    others = others.rename(cell_tables.name_part)
    found = pd.concat([classes, others])
    found = found.reindex(found.abs().sort_values(ascending=False, kind="stable").index)
    small = (found.abs() < LEAST * found.abs().sum()) | (np.arange(len(found)) >= MOST_STEPS)
    rest = pd.Series({"all others": found[small].sum()})
    return pd.concat([found[~small], rest]) if abs(rest.iloc[0]) > LEAST / 10 * found.abs().sum() else found[~small]


def _draw_waterfall(axis: Axes, row: dict, rows: pd.Series) -> None:
    """Draw both times as bars, and the changes between them; with small changes the axis begins above 0."""
    start, end = row["baseline_ns"], row["candidate_ns"]
    ends = start + rows.cumsum()
    names = [row["baseline"], *rows.index, row["candidate"]]
    reached = [start, *ends.iloc[:-1], end]
    low, high = min(reached), max(reached)
    left = 0.0 if low < 0.75 * high else low - 0.35 * (high - low)
    unit, size = _choose_unit(high)
    for place, total in ((0, start), (len(names) - 1, end)):
        axis.barh(place, (total - left) / size, left=left / size, color=REST, height=0.66)
        _draw_label(axis, total / size, place, format_ns(total), fontweight="bold")
    for place, (before, after) in enumerate(pairwise([start, *ends]), start=1):
        axis.barh(place, (after - before) / size, left=before / size, color=_choose_colour(after - before), height=0.66)
        sign = "+" if after > before else "−"
        _draw_label(axis, max(before, after) / size, place, f"{sign}{format_ns(abs(after - before))}")
    for place, total in enumerate(reached[:-1]):
        axis.plot([total / size] * 2, [place - 0.33, place + 1.33], color="#444444", linewidth=0.7, zorder=3)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(axis="y", labelsize=8.5)
    plots.set_row_limits(axis, len(names))
    axis.set_xlim(left / size, (high + 0.16 * (high - left)) / size)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(
        f"Time of a {row['per']} ({unit})" + ("; the axis does not begin at 0" if left else ""), fontsize=8.5
    )
    axis.tick_params(axis="x", labelsize=8)
    label = f"{row['model']} · {row['phase']}"
    axis.set_title(f"{label}: {fixed(1 / row['ratio'], 1, 3)} times as fast, {row['verdict']}", fontsize=10.5)


def _draw_label(axis: Axes, x: float, place: int, said: str, **more: Any) -> None:
    """Write a label beside the end of a bar, on white, because lines of the grid run behind it."""
    axis.annotate(said, (x, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, **more)  # fmt: skip


def _choose_unit(ns: float) -> tuple[str, float]:
    """Return a readable unit for a time in ns, and the number of ns in this unit."""
    return next(((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if ns >= size), ("ns", 1.0))


def _choose_colour(change: float) -> str:
    return MORE if change > 0 else LESS


def _choose_kernels(seen: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels that changed most, without kernels that hardly changed."""
    rows = seen[seen["level"] == contributions.KERNEL_LEVEL]
    size = rows["delta_ns"].abs()
    return rows.loc[size[size > LEAST * size.sum()].nlargest(MOST_KERNELS).index]


def _draw_kernels(axis: Axes, kernels: pd.DataFrame) -> None:
    """Draw one bar per kernel, with its name above."""
    if kernels.empty:
        axis.set_axis_off()
        return
    unit, size = _choose_unit(kernels["delta_ns"].abs().max())
    values = kernels["delta_ns"] / size
    places = np.arange(len(kernels))
    axis.barh(places, values, color=[_choose_colour(value) for value in values], height=0.34)
    # The zero line is interrupted so that it does not cross the names.
    axis.vlines(np.zeros(len(places)), places - 0.2, places + 0.2, color="#444444", linewidth=0.8)
    names = short_names.shorten_names(kernels["name"])
    for place, row in enumerate(kernels.to_dict("records")):
        name = " ".join(filter(None, [row["range"], names[row["name"]]])).replace("$", r"\$")
        axis.text(0, place - 0.4, name + (f" ({row['change']})" if row["change"] else ""), va="center", fontsize=7.5,
                  transform=axis.get_yaxis_transform(), color="#333333")  # fmt: skip
    axis.set_ylim(len(kernels) - 0.6, -0.8)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_xlabel(f"Kernels that changed most ({unit})", fontsize=8.5)
    axis.tick_params(axis="x", labelsize=8)
