"""Style and drawing functions that all figures share."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox, blended_transform_factory

from profzoo import formatting
from profzoo.figures import palette
from profzoo.range_names import IMPORTED
from profzoo.tables.cell_counters import NEARLY_ALL

# The theme of all figures: a copy of seaborn's `whitegrid` in the context `paper` with font scale 1.1.
#
# Importing seaborn takes 0.7 s, mostly for scipy.stats, which figures do not need. tests/unit/test_figures.py compares
# these values with seaborn's.

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
# Add hover texts to the marks of a figure, as titles in its SVG file.

# Prefix of the identifier of a group that holds the hover texts of its marks, and separator between these texts.
TITLE_PREFIX, TITLE_SEPARATOR = "told:", " ¦ "
GROUP = re.compile(rf'<g id="{TITLE_PREFIX}([^"]*)">')
POINT = re.compile(r"<use ([^>]*)/>")
# The layout is computed with the first font; browsers without it use another font of about the same width.
FONT, FONTS = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"


def attach_titles(artist: Artist, texts: Sequence[str]) -> None:
    """Attach hover texts to an artist's marks, in their order; a single text applies to the whole artist."""
    if texts:
        artist.set_gid(TITLE_PREFIX + TITLE_SEPARATOR.join(text.replace(TITLE_SEPARATOR, " ") for text in texts))


def add_titles(svg: str) -> str:
    """Return the SVG with the attached hover texts as titles, and with fonts that every browser has.

    >>> add_titles('<g id="told:a ¦ b"><use x="1"/><use x="2"/></g>')
    '<g><use x="1"><title>a</title></use><use x="2"><title>b</title></use></g>'
    >>> add_titles('<g id="told:a: 5 %"><path d=""/></g>')
    '<g><title>a: 5 %</title><path d=""/></g>'
    """
    head, *rest = GROUP.split(svg)
    parts = [head]
    for told, body in zip(rest[::2], rest[1::2], strict=True):
        texts = told.split(TITLE_SEPARATOR)
        parts.append(f"<g><title>{told}</title>{body}" if len(texts) == 1 else f"<g>{_title_points(texts, body)}")
    return re.sub(rf"{FONT}(?!,)", FONTS, "".join(parts))


def _title_points(texts: Sequence[str], body: str) -> str:
    """Return the SVG text of a group with a title for each of its points."""
    left = iter(texts)

    def point(use: re.Match[str]) -> str:
        text = next(left, None)
        return use[0] if text is None else f"<use {use[1].rstrip()}><title>{text}</title></use>"

    return POINT.sub(point, body)


matplotlib.use("Agg")
PHASE_MARKERS = {"train": "o", "inference": "^", IMPORTED: "s"}
# Resolution of PNG files without a setting, in dots per inch.
DPI = 300
# What a format would say of each file that is different in every run, or with every release of matplotlib.
VARYING = {".svg": "Date", ".png": "Software", ".pdf": "CreationDate"}
ROW_HEIGHT = 0.32
# Width of a character of a row's name in inches, in the style's font.
CHARACTER = 0.085
# Rows from which on the names of columns stand above a map, too.
MANY_ROWS = 15
# Share of its cell's GPU time from which on a class of kernels has a row.
LEAST_CLASS = 0.1
# Which multiples of powers of ten are written on an axis, by the ratio of its largest to its smallest value.
MULTIPLES = {20.0: (1, 2, 5), 300.0: (1, 3), float("inf"): (1,)}
# Ratio up to which steps between numbers are equal.
EQUAL_STEPS = 4


def set_style() -> None:
    """Set the theme, and the options with which SVG files are the same in every run."""
    plt.rcParams.update(THEME)
    # Text stays text in an SVG, so that readers can search for it.
    plt.rcParams.update({"svg.hashsalt": "profzoo", "svg.fonttype": "none", "font.family": "DejaVu Sans"})
    # Type 42 is a font that publishers accept.
    plt.rcParams.update({"pdf.fonttype": 42})
    plt.rcParams.update({"axes.spines.left": False})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})


def label_cells(cell: pd.DataFrame) -> pd.Series:
    """Return the name of each row's cell as figures show it; cell: a frame with the columns model and phase."""
    return cell["model"] + " · " + cell["phase"].replace("inference", "infer")


def figure_height(rows: int, least: float = 2.6) -> float:
    """Return the height of a figure with this number of rows, in inches; least: the smallest height."""
    return max(least, 1.5 + ROW_HEIGHT * rows)


def figure_width(names: Iterable[str], beside: float, least: float) -> float:
    """Return the width of a figure in inches; names: of its rows. beside: width of the rest. least: smallest width."""
    return max(least, beside + CHARACTER * max((len(name) for name in names), default=0))


def name_columns_on_top(axis: Axes, rows: int) -> None:
    """Write the names of a map's columns above it too, if it is so long that they are far below the first rows."""
    axis.tick_params(labeltop=rows >= MANY_ROWS)


def draw_stacked_bars(axis: Axes, shares: pd.DataFrame, colours: Mapping[str, str], totals: Sequence[str]) -> None:
    """Draw one stacked bar of 100 % per row; wide parts show their share.

    shares: one row per bar and one column per part, in %; columns without a colour are left out. colours: by part, in
    the order of the stack. totals: text beside each bar that says what 100 % is.
    """
    order = list(shares.index)
    left = pd.Series(0.0, index=order)
    for part in (name for name in colours if name in shares and shares[name].gt(0).any()):
        look: dict[str, Any] = {"color": colours[part], "edgecolor": "white", "linewidth": 0.6, "height": 0.7}
        bars = axis.barh(order, shares[part], left=left, label=part, **look)
        for bar, name, share in zip(bars, order, shares[part], strict=True):
            attach_titles(bar, [f"{name}: {part} {share:.1f} %"])
        colour = text_colour(colours[part])
        for row, (start, width) in enumerate(zip(left, shares[part], strict=True)):
            if width >= 7:
                axis.text(start + width / 2, row, f"{width:.0f} %", ha="center", va="center", fontsize=8, color=colour)
        left += shares[part]
    for row, total in enumerate(totals):
        axis.text(101, row, total, va="center", fontsize=8)
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    set_row_limits(axis, len(order))
    axis.grid(visible=False, axis="y")
    handles, labels = axis.get_legend_handles_labels()
    columns = len(labels) if len(labels) <= 7 else -(-len(labels) // 2)
    # A wide legend begins at the edge of the figure, as long labels of rows leave too little room beside them.
    wide = blended_transform_factory(axis.figure.transFigure, axis.transAxes) if columns < len(labels) else None
    axis.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0), bbox_transform=wide or axis.transAxes,
                ncols=columns, frameon=False, handlelength=1, columnspacing=1.2)  # fmt: skip


def text_colour(colour: str) -> str:
    """Return a readable text colour for a background colour."""
    red, green, blue = to_rgb(colour)
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.45 else "black"


def set_row_limits(axis: Axes, count: int) -> None:
    """Show this number of rows, the first on top, without the empty space that matplotlib leaves at both ends."""
    axis.set_ylim(count - 0.4, -0.6)


def save_figure(figure: Figure, outputs: Sequence[str], note: str, dpi: int = DPI) -> None:
    """Write the figure to each file, with a note on devices and dates below it; dpi: resolution of PNG files."""
    # The widths of letters are rounded to pixels, so that names need their room at the resolution of the file.
    figure.set_dpi(dpi)
    inch = 1 / figure.get_size_inches()[1]
    figure.text(0.01, 0.05 * inch, note, fontsize=7, color="#666666", va="bottom")
    figure.tight_layout(rect=(0, 0.22 * inch, 1, 1))
    # What tight_layout leaves behind would have the figure drawn twice into each file.
    figure.set_layout_engine(None)
    for path in outputs:
        figure.savefig(path, dpi=dpi, metadata={VARYING[Path(path).suffix]: None})
        if Path(path).suffix == ".svg":
            Path(path).write_text(add_titles(Path(path).read_text(encoding="utf-8")), encoding="utf-8")
    plt.close(figure)


def make_note(table: pd.DataFrame) -> str:
    """Return the note on devices and dates of measurements; table: a frame with the columns device and date."""
    devices, days = (", ".join(sorted({*table[column]} - {""})) for column in ("device", "date"))
    return f"{devices}; measured {days or 'at an unknown time'}; profzoo"


def draw_points_by_phase(axis: Axes, cells: pd.DataFrame, x: pd.Series, y: pd.Series, size: float) -> None:
    """Draw one point per cell, with the colour and marker of its phase.

    cells: a frame with the columns model and phase. x, y: coordinates with the same index. size: area of a point in
    square points.
    """
    for phase, colour in palette.PHASE_COLOURS.items():
        mine = cells["phase"] == phase
        if not mine.any():
            continue
        points = axis.scatter(
            x[mine], y[mine], color=colour, marker=PHASE_MARKERS[phase], s=size, label=phase, zorder=3
        )
        attach_titles(points, (cells["model"] + " " + cells["phase"])[mine].to_list())


def weighted_means(table: pd.DataFrame, column: str, by: str | list[str]) -> pd.Series:
    """Return the means of a column by group, weighted by GPU time; rows without a value or time are left out.

    table: a frame with `total_ns`, the column, and the columns `by` that define the groups.
    """
    known = table[table[column].notna() & table["total_ns"].notna()]
    keys = [known[key] for key in ([by] if isinstance(by, str) else by)]
    sums = (known[column] * known["total_ns"]).groupby(keys).sum()
    return sums / known.groupby(by)["total_ns"].sum()


def label_groups(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of cells, and of classes with at least LEAST_CLASS of their cell's time, with `row` and `name`.

    `row` tells all rows of a figure apart, and `name` is what stands beside them: of a class only its own name.

    table: rows of a table with levels `cell` and `class`, each cell's own rows before those of its classes.
    """
    cells = table.assign(cell=label_cells(table))
    whole = cells[cells["level"] == "cell"].groupby("cell")["total_ns"].first()
    large = cells["total_ns"] >= LEAST_CLASS * cells["cell"].map(whole)
    kept = cells[(cells["level"] == "cell") | large]
    whole_cell = kept["level"] == "cell"
    return kept.assign(
        row=kept["cell"].where(whole_cell, kept["cell"] + " · " + kept["class"]),
        name=kept["cell"].where(whole_cell, kept["class"]) + describe_coverage(kept),
    )


def name_groups(axis: Axes, rows: pd.DataFrame, first: float = 0.0) -> None:
    """Write the names of rows beside them, those of cells in bold; rows: of label_groups. first: place of the first."""
    named = rows.drop_duplicates("row")
    axis.set_yticks([first + place for place in range(len(named))], list(named["name"]), rotation=0)
    for label, level in zip(axis.get_yticklabels(), named["level"], strict=True):
        label.set_fontweight("bold" if level == "cell" else "normal")


def describe_coverage(table: pd.DataFrame) -> pd.Series:
    """Return the end of each row's label: which share of its GPU time was counted; empty where all of it was.

    table: rows with `counted_share`; rows of one cell and class are taken to have the same.
    """
    share = table["counted_share"].fillna(1.0)
    return share.map(lambda one: "" if one >= NEARLY_ALL else f" ({one * 100:.0f} % counted)")


def set_logarithmic(axis: Axis, values: pd.Series) -> None:
    """Make an x or y axis logarithmic, with numbers that have room: between powers of ten only where these are few."""
    known = values[values > 0]
    times = known.max() / known.min()
    (axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale)("log")
    powers = LogLocator(subs=next(shown for most, shown in MULTIPLES.items() if times < most))
    # Where values are close, 1, 2 and 5 times a power of ten would leave a single number, or none.
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]) if times < EQUAL_STEPS else powers)
    axis.set_major_formatter(FuncFormatter(formatting.tick))
    axis.set_minor_formatter(NullFormatter())


def draw_nothing(why: str) -> Figure:
    """Return an empty figure with a text that says why it shows no data."""
    figure, axis = plt.subplots(figsize=(8, 1.6))
    axis.text(0.5, 0.5, why, ha="center", va="center", color="#666666", transform=axis.transAxes)
    axis.set_axis_off()
    return figure


def name_points(axis: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write names beside points, where they cover no other name, point, interval or line; others are left out.

    points: x, y and name of each point.
    """
    axis.autoscale_view()
    axis.figure.canvas.draw()
    lines: list[Any] = [one for curve in axis.get_lines() for one in itertools.pairwise(np.asarray(curve.get_xydata()))]
    intervals = [one for lot in axis.collections if isinstance(lot, LineCollection) for one in lot.get_segments()]
    taken: list[Any] = []
    for (x0, y0), *_, (x1, y1) in map(axis.transData.transform, [*lines, *intervals]):
        taken.append(Bbox.from_extents(x0 - 1, y0 - 1, x1 + 1, y1 + 1))
    for lot in (one for one in axis.collections if not isinstance(one, LineCollection)):
        for x, y in lot.get_offset_transform().transform(lot.get_offsets()):
            taken.append(Bbox.from_extents(x - 4, y - 4, x + 4, y + 4))
    for x, y, name in points:
        for offset, horizontal in (((6, 0), "left"), ((-6, 0), "right"), ((6, 9), "left"), ((6, -9), "left"),
                                   ((-6, 9), "right"), ((-6, -9), "right"), ((0, 14), "center")):  # fmt: skip
            text = axis.annotate(name, (x, y), xytext=offset, textcoords="offset points", ha=horizontal, va="center",
                                 fontsize=7.5, color="#333333")  # fmt: skip
            box = text.get_window_extent()
            inside = axis.get_window_extent().x0 <= box.x0 and box.x1 <= axis.figure.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


# Draws heat maps of percentages.

# Height of the legend of colours, in inches.
BAR = 1.6


def draw_percent_map(axis: Axes, table: pd.DataFrame, colours: str) -> None:
    """Draw a heat map of percentages, with each number in its cell; colours: name of a pale colour map."""
    # Imported here, because it takes 0.7 s, and only figures of this kind need it.
    import seaborn as sns

    bar = {"label": "%", "shrink": min(0.8, BAR / figure_height(len(table))), "aspect": 12}
    sns.heatmap(table, ax=axis, cmap=colours, vmin=0, vmax=100, annot=True, fmt=".0f", annot_kws={"fontsize": 8},
                linewidths=0.5, cbar_kws=bar, yticklabels=True)  # fmt: skip
    name_columns_on_top(axis, len(table))
    for number in axis.texts:
        # The page gives seaborn's dark grey the theme's text colour, but the map is pale in every theme.
        if number.get_color() == ".15":
            number.set_color("black")
    # seaborn turns names that are few and long.
    axis.tick_params(axis="both", rotation=0)
