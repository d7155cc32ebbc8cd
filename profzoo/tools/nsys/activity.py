"""Summarizes kernels and ranges from an exported nsys trace."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.tools.nsys import tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

PLACE = 10
TABLE = tables.TABLE
FACTS: fact.Needs = {"capture": fact.TEXT, "traced_steps?": fact.COUNT}


def summarise_kernels(table: pd.DataFrame, facts: "Sidecar") -> pd.DataFrame:
    """Return the launches of the window's steps."""
    kept = tables.launches_in_steps(table)
    return kept.assign(kind="kernel", name=kept["kernel"], count=kept["launches"], ns=kept["total_ns"])


def summarise_ranges(table: pd.DataFrame, facts: "Sidecar") -> tuple[str, Mapping[str, Any]]:
    """Return GPU time and launches by launching range; kernels launched outside all ranges have an empty name."""
    kept = tables.launches_in_steps(table)
    grouped = kept.assign(range=kept["range"].fillna("")).groupby("range")[["total_ns", "launches"]].sum()
    return "gpu", {name: tuple(values) for name, values in zip(grouped.index, grouped.to_numpy(), strict=True)}
