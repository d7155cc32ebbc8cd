"""Draw how much memory one cell holds over its traced steps, by the part of the step that allocated it."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from profzoo import formatting
from profzoo.cell.sidecar_files import read_facts
from profzoo.figures import palette, plots
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.tools.torch import memory_over_time
from profzoo.tools.torch.memory_over_time import HELD

FACTS: fact.Needs = {"device": fact.TEXT, "started": fact.TEXT}
COLOURS = palette.MEMORY_COLOURS | palette.PART_COLOURS
RESERVED = "reserved"
# Parts that never hold this share of the peak are too thin to be seen, and not in the legend.
LEAST_SEEN = 0.002


def main(csv: str, sidecar: str, outputs: Sequence[str], dpi: int) -> None:
    """Read a cell's table and sidecar, draw the figure, and write it to each output file; dpi: of PNG files."""
    facts = read_facts(sidecar, FACTS)
    note = pd.DataFrame([{"device": facts["device"], "date": facts["started"][:10]}])
    model, phase = Path(csv).parent.name, Path(csv).name.split(".")[0]
    figure = draw(reading.read(csv, memory_over_time.TABLE), f"{model} {phase}")
    plots.save_figure(figure, outputs, plots.make_note(note), dpi)


def draw(table: pd.DataFrame, cell: str) -> Figure:
    """Draw allocated memory as areas by the part that allocated it, and reserved memory as a line.

    table: rows of memory_over_time.TABLE of one device, or of several, of which the first is drawn. cell: its name.
    """
    plots.set_style()
    rows = table[table["device"] == table["device"].iloc[0]].reset_index(drop=True)
    figure, axis = plt.subplots(figsize=(10, 4.2))
    unit, scale = ("GB", 1e9) if rows["allocated_bytes"].max() >= 1e9 else ("MB", 1e6)
    held = rows[[f"{part}_bytes" for part in HELD]].to_numpy(dtype=float, copy=True)
    # Where totals begin with the trace, memory from before may be released below 0.
    held[:, 0] -= min(held[:, 0].min(), 0.0)
    _draw_areas(axis, rows["ns"].to_numpy() / 1e6, held / scale)
    if rows["reserved_bytes"].notna().all():
        reserved = rows["reserved_bytes"] / scale
        axis.plot(rows["ns"] / 1e6, reserved, color=COLOURS[RESERVED], linewidth=1.2, label=RESERVED, ds="steps-post")
    _mark_peak(axis, rows, scale, held.sum(axis=1) / scale)
    _mark_steps(axis, rows)
    axis.set(xlabel="Time since the first traced step began, on the host, under torch.profiler (ms)",
             ylabel=f"Allocated on {rows['device'].iloc[0]} ({unit})")  # fmt: skip
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.set_title(f"{cell}: memory by the part of the step that allocated it", pad=26)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=9, frameon=False, handlelength=1, columnspacing=1.2)
    return figure


def _draw_areas(axis: Axes, ms: np.ndarray, held: np.ndarray) -> None:
    """Draw one stacked area for each part that allocated anything; held: shape (events, parts)."""
    below = np.zeros(len(ms))
    for part, size in zip(HELD, held.T, strict=True):
        if size.any():
            seen = part if size.max() >= LEAST_SEEN * held.sum(axis=1).max() else "_"
            axis.fill_between(ms, below, below + size, step="post", color=COLOURS[part], label=seen, linewidth=0)
            below = below + size


def _mark_peak(axis: Axes, rows: pd.DataFrame, scale: float, heights: np.ndarray) -> None:
    """Name the size of the peak beside it, and the operator that reached it."""
    peak = rows["allocated_bytes"].idxmax()
    row = rows.loc[peak]
    said = f"peak {formatting.size(row['allocated_bytes'])}" + (f", {row['operator']}" if row["operator"] else "")
    moment = row["ns"] / 1e6
    axis.plot([moment], [heights[peak]], marker="o", color="#262626", markersize=4, zorder=4)
    late = moment > rows["ns"].max() / 2e6
    axis.annotate(said, (moment, heights[peak]), xytext=(-6 if late else 6, 5), textcoords="offset points",
                  ha="right" if late else "left", fontsize=8)  # fmt: skip
    axis.margins(y=0.12)


def _mark_steps(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw a line where each step but the first makes its first event of memory."""
    first = rows[rows["step"].notna()].groupby("step")["ns"].min() / 1e6
    for moment in first.iloc[1:]:
        axis.axvline(moment, color="#666666", linewidth=0.8, linestyle=":")
