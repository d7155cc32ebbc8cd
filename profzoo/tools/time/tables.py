"""What the baseline's table holds, a row a step, as harness/recorders.py writes it."""

import pandas as pd

from profzoo.reading import kinds
from profzoo.reading.tables import Table


def _in_order(table: pd.DataFrame) -> str | None:
    wrong = sorted(table["step"]) != list(range(len(table)))
    return f"steps are not those from 0 to {len(table) - 1}: rows are missing" if wrong else None


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
