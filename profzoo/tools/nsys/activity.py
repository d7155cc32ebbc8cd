"""What an exported nsys trace says of kernels and of parts of the step."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.tools.nsys import tables

PLACE = 10
ALONE = False
TABLE = tables.TABLE
FACTS: fact.Needs = {"capture": fact.TEXT, "traced_steps?": fact.COUNT}
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {}


def of_kernels(table: pd.DataFrame, facts: Mapping[str, Any]) -> pd.DataFrame:
    """Launches of the window's steps."""
    kept = tables.launches_in_steps(table)
    return kept.assign(kind="kernel", name=kept["kernel"], count=kept["launches"], ns=kept["total_ns"])


def of_ranges(table: pd.DataFrame, facts: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """GPU time and launches of the kernels that each part launched; those outside every part have an empty name."""
    kept = tables.launches_in_steps(table)
    grouped = kept.assign(range=kept["range"].fillna("")).groupby("range")[["total_ns", "launches"]].sum()
    return "gpu", {name: tuple(values) for name, values in zip(grouped.index, grouped.to_numpy(), strict=True)}


def of_cell(table: pd.DataFrame, facts: Mapping[str, Any]) -> Mapping[str, float]:
    """Nothing that the table of steps does not say."""
    return {}
