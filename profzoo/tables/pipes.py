"""Makes a cell's table of pipe utilisation: how busy the pipes of the SMs are, for the cell and each kernel class."""

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tables import counter_dictionary
from profzoo.tables.counter_groups import COVERED, LEADING
from profzoo.tools.ncu.chart_quantities import PIPE_FORMS, PIPE_NAMES

COLUMNS = [*LEADING, "pipe", "busy_pct", "counted", "counted_share"]
TEXTS = ("level", "class", "pipe", "counted")
TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.AMOUNT) for name in COLUMNS
    },
    key=["level", "class", "pipe"],
    about=counter_dictionary.PIPES,
)


def make_pipes(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and pipe, the busiest pipe of each group first.

    If both active cycles and instructions of a pipe were collected, the cycles count.

    sums: result of counter_groups.sum_by_group for chart_quantities.PIPES.
    """
    frames = []
    for pipe in PIPE_NAMES:
        for place, row in sums.iterrows():
            known = ((how, row.get(f"{pipe} {how}")) for how in PIPE_FORMS)
            counted = next(((how, value) for how, value in known if value is not None and pd.notna(value)), None)
            if counted:
                told = {"pipe": pipe, "counted": counted[0], "busy_pct": float(counted[1]), "place": place}
                covered = row.get(f"{pipe} {counted[0]}{COVERED}")
                frames.append({**row[LEADING].to_dict(), **told, "counted_share": covered})
    if not frames:
        return TABLE.empty()
    whole = pd.DataFrame(frames).sort_values(["place", "busy_pct"], ascending=[True, False], kind="stable")
    return whole[COLUMNS].reset_index(drop=True)
