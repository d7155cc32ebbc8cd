"""Choose the best of the settings that were tried on a cell."""

from typing import Any

import pandas as pd

from profzoo.statistics import speedup


def best_row(rows: pd.DataFrame) -> dict[str, Any] | None:
    """Return the chosen trial of a cell, else the fastest one that is clearly faster and never failed, else None.

    Settings with which the cell computes something else are not called faster, and so are never returned.

    rows: the cell's rows of the table of trials.
    """
    sure = rows[(rows["verdict"] == speedup.FASTER) & (rows["why"].fillna("") == "")]
    found = sure.sort_values(["chosen", "gain"], ascending=False).to_dict("records")
    return {str(name): value for name, value in found[0].items()} if found else None
