"""Counts in how many of the traced steps a kernel is launched, where steps launch differently."""

from collections.abc import Sequence

import pandas as pd

from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.tools.nsys import launches as nsys_launches

PLACE, COUNT = "place", "count"


def count_steps(launches: pd.DataFrame, steps: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame | None:
    """Return IN_STEPS and OF_STEPS of each group of launches; None if all steps launch the same.

    Of several processes, the first one with the most steps counts.

    Args:
        launches: rows of nsys_launches.read_launches. steps: of trace.read_window_steps. by: columns of a group, which
            tell launch configurations apart.
    """
    if steps.empty:
        return None
    mine = steps[steps["process"] == steps["process"].mode()[0]].reset_index(drop=True)
    placed = launches.assign(**{PLACE: nsys_launches.step_positions(launches, mine)})
    counts = placed[placed[PLACE] >= 0].groupby([*by, PLACE]).size().rename(COUNT).reset_index()
    held = counts.groupby(list(by))[COUNT].agg(["min", "max", "size"])
    if (held["min"].eq(held["max"]) & held["size"].eq(len(mine))).all():
        return None
    return held["size"].rename(IN_STEPS).to_frame().assign(**{OF_STEPS: len(mine)})
