"""Summarizes kernels from ncu's census."""

from typing import TYPE_CHECKING

import pandas as pd

from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.export_schema import CENSUS

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

PLACE = 30
ALONE = True
TABLE = CENSUS


def summarise_kernels(table: pd.DataFrame, facts: "Sidecar") -> pd.DataFrame:
    """Return one row per launch."""
    return table.assign(kind="kernel", name=table["kernel"], count=1, ns=table[GPU_TIME])
