"""Chooses which tool's numbers of a cell to show."""

import pandas as pd

from profzoo import tools

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)


def prefer_tool(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one tool per cell: the preferred one among those that have any."""
    place = {name: number for number, name in enumerate(tools.activities())}
    rank = table["tool"].map(place)
    return table[rank == rank.groupby([table["model"], table["phase"]]).transform("min")]
