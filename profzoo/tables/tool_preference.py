"""Which tool's numbers of a cell to show, where there are several."""

import pandas as pd

from profzoo import tools

FILES = ("../tools/*/activity.py",)


def prefer_tool(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of one tool a cell: of those that have any, the one to go by first."""
    place = {name: number for number, name in enumerate(tools.activities())}
    rank = table["tool"].map(place)
    return table[rank == rank.groupby([table["model"], table["phase"]]).transform("min")]
