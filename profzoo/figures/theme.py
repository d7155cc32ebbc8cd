"""The theme of all figures: a copy of seaborn's `whitegrid` in the context `paper` with font scale 1.1.

Importing seaborn takes 0.7 s, mostly for scipy.stats, which figures do not need. tests/unit/test_figures.py compares
these values with seaborn's.
"""

from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.rcsetup import cycler

from profzoo.figures import palette

# Sizes in the context `paper` over those in `notebook`.
PAPER = 0.8
TEXT, SMALL_TEXT = 12 * PAPER * 1.1, 11 * PAPER * 1.1
DARK, LIGHT = ".15", ".8"
TICKS = {"major.size": 6 * PAPER, "major.width": 1.25 * PAPER, "minor.size": 4 * PAPER, "minor.width": PAPER}
THEME: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": LIGHT,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelcolor": DARK,
    "axes.labelsize": TEXT,
    "axes.linewidth": 1.25 * PAPER,
    "axes.prop_cycle": cycler(color=[to_rgb(colour) for colour in palette.CYCLE]),
    "axes.titlesize": TEXT,
    "figure.facecolor": "white",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["Arial", "DejaVu Sans", "Liberation Sans", "Bitstream Vera Sans", "sans-serif"],
    "font.size": TEXT,
    "grid.color": LIGHT,
    "grid.linestyle": "-",
    "grid.linewidth": PAPER,
    "legend.fontsize": SMALL_TEXT,
    "legend.title_fontsize": TEXT,
    "lines.linewidth": 1.5 * PAPER,
    "lines.markersize": 6 * PAPER,
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "w",
    "patch.force_edgecolor": True,
    "patch.linewidth": PAPER,
    "text.color": DARK,
    "xtick.bottom": False,
    "ytick.left": False,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in TICKS.items()},
    **{f"{axis}tick.color": DARK for axis in "xy"},
    **{f"{axis}tick.labelsize": SMALL_TEXT for axis in "xy"},
}
