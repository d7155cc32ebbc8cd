"""What the baseline's tables hold, a row a step, as harness/recorders.py and harness/rounds.py write them."""

from dataclasses import replace

import pandas as pd

from profzoo.reading import kinds
from profzoo.reading.tables import Table


def _in_order(table: pd.DataFrame) -> str | None:
    wrong = sorted(table["step"]) != list(range(len(table)))
    return f"steps are not those from 0 to {len(table) - 1}: rows are missing" if wrong else None


def _each_in_order(table: pd.DataFrame) -> str | None:
    processes = table["process"].unique()
    if sorted(processes) != list(range(len(processes))):
        return f"processes are not those from 0 to {len(processes) - 1}: rows are missing"
    wrong = [(process, why) for process, rows in table.groupby("process") if (why := _in_order(rows))]
    return f"process {wrong[0][0]}: {wrong[0][1]}" if wrong else None


TABLE = Table(
    columns={
        "step": kinds.COUNT,
        "wall_ns": kinds.COUNT,
        # Of a GPU alone.
        "gpu_ns": kinds.maybe(kinds.COUNT),
        "items": kinds.COUNT,
    },
    optional={"peak_memory_bytes": kinds.maybe(kinds.COUNT)},
    key=["step"],
    holds=_in_order,
)
# Of several processes, one after the other; side: of which of what is compared, empty where nothing is.
REPEATED = replace(
    TABLE,
    columns={"side": kinds.TEXT, "process": kinds.COUNT, **TABLE.columns},
    key=["process", "step"],
    holds=_each_in_order,
)
