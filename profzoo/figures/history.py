"""Draw how long steps of the main branch took: a panel for each program and machine, with the steps that were found."""

import textwrap
from collections.abc import Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from profzoo import formatting
from profzoo.figures import palette, plots
from profzoo.figures.plots import attach_titles

CAPTION = (
    "Time per step of each program at commits of the main branch, from left to right by time. Each machine has a panel "
    "of its own. A line is the median between two steps; a shaded range holds the place of a step with 95 % confidence."
)
# Inches of a panel, and commits that are named below it at most; characters of a line above it.
PANEL, WIDTH, MOST_TICKS = 2.1, 6.5, 5
ACROSS = 84
# Digits of a commit.
SHORT = 7
# Share of an axis that a label of a step takes.
LABEL_SHARE = 0.14


def draw(points: pd.DataFrame, steps: pd.DataFrame) -> Figure:
    """Draw a panel per program and machine, the programs in alphabetical order.

    points: a row per measurement, in the order of commits; columns: program, machine, device (its facts in words),
    commit, committed, seconds. steps: a row per step that was found; columns: program, machine, place (number of the
    first point after it), first, last (ends of its confidence set), ratio, low, high.
    """
    plots.set_style()
    if points.empty:
        return plots.draw_nothing("The history has no measurement")
    groups = list(points.groupby(["program", "machine"], sort=True))
    figure, panels = plt.subplots(len(groups), 1, figsize=(WIDTH, PANEL * len(groups) + 0.4), squeeze=False)
    for (axis,), ((program, machine), own) in zip(panels, groups, strict=True):
        found = steps[(steps["program"] == program) & (steps["machine"] == machine)].sort_values("place")
        _draw_panel(axis, own.reset_index(drop=True), found)
        told = "\n".join(line for text in (program, own["device"].iloc[0]) for line in textwrap.wrap(text, ACROSS))
        axis.set_title(told, fontsize=8)
    return figure


def _draw_panel(axis: Axes, own: pd.DataFrame, steps: pd.DataFrame) -> None:
    """Draw the series of a program on a machine."""
    scale, unit = _choose_unit(float(own["seconds"].median()))
    values = own["seconds"] * scale
    dots = axis.scatter(own.index, values, color=palette.SAME, s=16, zorder=3)
    titles = zip(own["commit"], own["committed"], own["seconds"], strict=True)
    attach_titles(dots, [f"{commit[:SHORT]}, {day[:10]}: {formatting.format_ns(s * 1e9)}" for commit, day, s in titles])
    edges = [0, *map(int, steps["place"]), len(own)]
    for begin, end in pairwise(edges):
        middle = float(values.iloc[begin:end].median())
        axis.plot([begin - 0.5, end - 0.5], [middle] * 2, color="#444444", linewidth=1.2, zorder=2)
    low, high = float(values.min()), float(values.max())
    axis.set_ylim(low - 0.15 * (high - low or low), high + 0.35 * (high - low or high))
    for row in steps.to_dict("records"):
        _draw_step(axis, row, len(own))
    axis.set_xlim(-0.8, max(len(own) - 0.2, 0.8))
    axis.set_ylabel(f"time per step ({unit})", fontsize=8)
    axis.tick_params(axis="y", labelsize=8)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.yaxis.set_major_formatter(FuncFormatter(formatting.tick))
    places = _choose_ticks(len(own))
    axis.set_xticks(
        places, [f"{own['commit'][at][:SHORT]}\n{own['committed'][at][:10]}" for at in places], fontsize=7.5
    )
    axis.grid(visible=False, axis="x")


def _draw_step(axis: Axes, row: dict[str, float], count: int) -> None:
    """Draw a step at its place, the range that holds it, and by how much the time changed."""
    colour = palette.MORE if row["ratio"] > 1 else palette.LESS
    held = axis.axvspan(row["first"] - 0.9, row["last"] - 0.1, color=colour, alpha=0.18, linewidth=0, zorder=0)
    told = f"{row['ratio'] - 1:+.1%}"
    attach_titles(held, [f"{told}: {row['low'] - 1:+.1%} to {row['high'] - 1:+.1%}"])
    right = row["place"] > (1 - LABEL_SHARE) * count
    axis.annotate(told, (row["place"] - 0.5, 0.97), xycoords=("data", "axes fraction"), color=colour, fontsize=8.5,
                  xytext=(-4 if right else 4, 0), textcoords="offset points", ha="right" if right else "left", va="top",
                  fontweight="bold")  # fmt: skip
    axis.axvline(row["place"] - 0.5, color=colour, linewidth=1, zorder=1)


def _choose_unit(seconds: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in ((1.0, "s"), (1e3, "ms")) if seconds * scale >= 1), (1e6, "µs"))


def _choose_ticks(count: int) -> Sequence[int]:
    """Return places that are named, the first and the last among them."""
    return sorted({*np.linspace(0, count - 1, min(count, MOST_TICKS)).round().astype(int).tolist()})
