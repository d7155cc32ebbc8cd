"""What torch.profiler's exported table says of kernels or operators, and of parts of the step."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from profzoo.reading import facts as fact
from profzoo.tools.torch import tables

PLACE = 20
ALONE = False
TABLE = tables.TABLE
FACTS: fact.Needs = {"device_type": fact.TEXT}
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {}


def of_kernels(table: pd.DataFrame, facts: Mapping[str, Any]) -> pd.DataFrame:
    """Kernels; on a CPU operators, with their own time, without what they call."""
    gpu = facts["device_type"] == "cuda"
    rows = table[table["kind"] == ("kernel" if gpu else "operator")]
    return rows.assign(ns=rows["device_ns" if gpu else "self_cpu_ns"])


def of_ranges(table: pd.DataFrame, facts: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """As of nsys; on a CPU the time that each part took, without a number of launches."""
    if facts["device_type"] != "cuda":
        parts = table[(table["kind"] == "range") & (table["name"] != "step")]
        return "cpu", {row["name"]: (row["cpu_ns"], None) for _, row in parts.iterrows()}
    kept = table[table["kind"] == "kernel"]
    grouped = kept.assign(range=kept["range"].fillna("")).groupby("range")[["device_ns", "count"]].sum()
    return "gpu", {name: tuple(values) for name, values in zip(grouped.index, grouped.to_numpy(), strict=True)}


def of_cell(table: pd.DataFrame, facts: Mapping[str, Any]) -> Mapping[str, float]:
    """Nothing."""
    return {}
