"""Makes a cell's table of kernels by owner: module, operator, launch configuration, time and counters in one row."""

from collections.abc import Mapping

import pandas as pd

from profzoo.reading import kinds
from profzoo.reading.tables import Table
from profzoo.tables import counters, kernel_classes, roofline
from profzoo.tables.owned import GROUPS, OWNER
from profzoo.tools.ncu import metrics
from profzoo.tools.ncu.tables import CONFIGURATION

HELD = ["bound", "efficiency", "efficiency_low", "efficiency_high"]
MEASURED = ["launches", "total_ns", "mean_ns", "share"]
COLUMNS = [*OWNER, "class", "kernel", "function", *CONFIGURATION, *MEASURED, *HELD, *metrics.QUANTITIES,
           *counters.INTERVALS]  # fmt: skip
TEXTS = (*OWNER, "class", "kernel", "function", "mangled", "bound")
TABLE = Table(
    columns={
        name: kinds.TEXT if name in TEXTS else kinds.maybe(kinds.NUMBER)
        for name in COLUMNS
        if name not in metrics.LATER
    }
    | dict.fromkeys([name for name in CONFIGURATION if name != "mangled"], kinds.maybe(kinds.COUNT))
    | dict.fromkeys(MEASURED, kinds.AMOUNT),
    optional=dict.fromkeys(metrics.LATER, kinds.maybe(kinds.NUMBER)),
    key=GROUPS,
)


def table(rows: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """COLUMNS, the longest first, per step; `share` is of all kernels, bound and efficiency are of the mean launch.

    Args:
        rows: as owned.totals has them by owned.GROUPS, or owned.of_torch; peaks: rates by name, byte/s and flop/s.
    """
    classes = kernel_classes.classify_all(rows["kernel"].unique())
    found = rows.assign(share=rows["total_ns"] / max(rows["total_ns"].sum(), 1))
    found["class"] = found["kernel"].map(classes)
    found[HELD] = roofline.of_launches(rows, peaks)[HELD]
    return found.sort_values("total_ns", ascending=False, kind="stable")[COLUMNS].reset_index(drop=True)
