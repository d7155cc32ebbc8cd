"""The look that all figures share, and how one is written."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PHASE_COLOURS = {"train": "#0072b2", "inference": "#e69f00"}
# Okabe and Ito's palette; their lightness differs too, so that grey print keeps them apart.
PART_COLOURS = {
    "data": "#f0e442",
    "transfer": "#e69f00",
    "forward": "#56b4e9",
    "loss": "#cc79a7",
    "backward": "#0072b2",
    "optimizer": "#009e73",
    "outside": "#bbbbbb",
}
ROW_HEIGHT = 0.32


def style() -> None:
    """Set seaborn's theme and what SVG needs to be the same from run to run."""
    sns.set_theme(context="paper", style="whitegrid", font_scale=1.1)
    plt.rcParams.update({"svg.hashsalt": "profzoo", "svg.fonttype": "path", "axes.spines.left": False})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})


def label(cell: pd.DataFrame) -> pd.Series:
    """The cells' names as figures show them."""
    return cell["model"] + " · " + cell["phase"].replace("inference", "infer")


def height(rows: int, least: float = 2.6) -> float:
    """Inches that a figure of that many rows needs."""
    return max(least, 1.5 + ROW_HEIGHT * rows)


def rows(axis: Axes, count: int) -> None:
    """Show so many rows from the top down, without the empty ones that matplotlib leaves above and below many."""
    axis.set_ylim(count - 0.4, -0.6)


def save(figure: Figure, outputs: Sequence[str], note: str) -> None:
    """Write the figure to each file, with the note on devices and date below it."""
    figure.text(0.01, 0.005, note, fontsize=7, color="#666666", va="bottom")
    figure.tight_layout(rect=(0, 0.035, 1, 1))
    for path in outputs:
        metadata = {"Date": None} if Path(path).suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=150, metadata=metadata)
    plt.close(figure)


def note(cells: str) -> str:
    """What a figure says of where and when its numbers come from; cells: path of the table of cells."""
    table = pd.read_csv(cells)
    devices, days = (", ".join(sorted(set(table[column]))) for column in ("device", "date"))
    return f"{devices}; measured {days}; profzoo"
