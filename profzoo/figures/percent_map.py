"""Draws heat maps of percentages. Only figures that need one import seaborn, which takes 0.7 s."""

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from profzoo.figures import plots

# Height of the legend of colours, in inches.
BAR = 1.6


def draw_percent_map(axis: Axes, table: pd.DataFrame, colours: str) -> None:
    """Draw a heat map of percentages, with each number in its cell; colours: name of a pale colour map."""
    bar = {"label": "%", "shrink": min(0.8, BAR / plots.figure_height(len(table))), "aspect": 12}
    sns.heatmap(table, ax=axis, cmap=colours, vmin=0, vmax=100, annot=True, fmt=".0f", annot_kws={"fontsize": 8},
                linewidths=0.5, cbar_kws=bar, yticklabels=True)  # fmt: skip
    plots.name_columns_on_top(axis, len(table))
    for number in axis.texts:
        # The page gives seaborn's dark grey the theme's text colour, but the map is pale in every theme.
        if number.get_color() == ".15":
            number.set_color("black")
    # seaborn turns names that are few and long.
    axis.tick_params(axis="both", rotation=0)
