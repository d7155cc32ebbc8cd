"""Summarizes kernels from ncu's census."""

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
    """Return one row per launch."""
    return table.assign(kind="kernel", name=table["kernel"], count=1, ns=table[GPU_TIME])


def of_ranges(table: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Return None: ncu runs launches one at a time, so their durations differ from durations in a step."""
    return


def of_cell(table: pd.DataFrame, facts: Mapping[str, Any]) -> Mapping[str, float]:
    """Return nothing: ncu has no values for the whole cell."""
    return {}
