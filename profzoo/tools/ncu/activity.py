"""What ncu's census says of kernels."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.export_schema import CENSUS

PLACE = 30
ALONE = True
TABLE = CENSUS
FACTS: fact.Needs = {}
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {}


def of_kernels(table: pd.DataFrame, facts: Mapping[str, Any]) -> pd.DataFrame:
    """Launches, a row each."""
    return table.assign(kind="kernel", name=table["kernel"], count=1, ns=table[GPU_TIME])


def of_ranges(table: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """None: launches that run alone take other times than those of a step."""
    return


def of_cell(table: pd.DataFrame, facts: Mapping[str, Any]) -> Mapping[str, float]:
    """Nothing."""
    return {}
