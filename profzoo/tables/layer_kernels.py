"""Makes a cell's table of kernels by owning layer: module, operator, launch configuration, time and counters."""

from collections.abc import Mapping

import pandas as pd

from profzoo.io import column_types
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.io.csv_tables import Table
from profzoo.kernels import counters, kernel_classes
from profzoo.launches.joined_step import GROUPS, OWNER
from profzoo.tables import dictionary, roofline
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.dictionary import DERIVED
from profzoo.tools.ncu.raw_page import CONFIGURATION

HELD = ["bound", "efficiency", "efficiency_low", "efficiency_high"]
MEASURED = ["launches", "total_ns", "mean_ns", "share"]
COLUMNS = [*OWNER, "class", "kernel", "function", *CONFIGURATION, *MEASURED, *HELD, *derived_metrics.QUANTITIES,
           *counters.INTERVALS]  # fmt: skip
TEXTS = (*OWNER, "class", "kernel", "function", "mangled", "bound")
TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.NUMBER)
        for name in COLUMNS
        if name not in counters.LATER
    }
    | dict.fromkeys([name for name in CONFIGURATION if name != "mangled"], column_types.or_missing(column_types.COUNT))
    | dict.fromkeys(MEASURED, column_types.AMOUNT),
    optional=dict.fromkeys(counters.LATER, column_types.or_missing(column_types.NUMBER))
    | dict.fromkeys(STEP_COUNTS, column_types.or_missing(column_types.COUNT)),
    key=GROUPS,
    about={**DERIVED, **dictionary.LAYER_KERNELS},
)


def make_layer_kernels(rows: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COLUMNS per step, longest first; `share` is of all kernels, bound and efficiency of the mean launch.

    Rows that have STEP_COUNTS keep them.

    Args:
        rows: result of joined_step.kernels or of joined_step.sum_torch_launches.
        peaks: measured rates by name, in byte/s and flop/s.
    """
    classes = kernel_classes.classify_all(rows["kernel"].unique())
    found = rows.assign(share=rows["total_ns"] / max(rows["total_ns"].sum(), 1))
    found["class"] = found["kernel"].map(classes)
    found[HELD] = roofline.bound_launches(rows, peaks)[HELD]
    columns = [*COLUMNS, *(name for name in STEP_COUNTS if name in found)]
    return found.sort_values("total_ns", ascending=False, kind="stable")[columns].reset_index(drop=True)
