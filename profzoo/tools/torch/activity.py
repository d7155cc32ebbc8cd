"""Summarizes kernels, operators and ranges from torch.profiler's exported table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.range_names import FORWARD, GENERATING, REST, STEP
from profzoo.tools.torch import tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

PLACE = 20
TABLE = tables.TABLE
FACTS: fact.Needs = {"device_type": fact.TEXT}


def summarise_kernels(table: pd.DataFrame, facts: "Sidecar") -> pd.DataFrame:
    """Return kernels; for a CPU run, operators with their self time."""
    gpu = facts["device_type"] == "cuda"
    rows = table[table["kind"] == ("kernel" if gpu else "operator")]
    return rows.assign(ns=rows["device_ns" if gpu else "self_cpu_ns"])


def summarise_ranges(table: pd.DataFrame, facts: "Sidecar") -> tuple[str, Mapping[str, Any]]:
    """Return GPU time and launches by launching range; for a CPU run, the time of each part of the step, and REST.

    On a CPU, the parts and REST add up to the steps. REST is needed because a model with its own training step may open
    other ranges than the parts.
    """
    if facts["device_type"] != "cuda":
        times = {row["name"]: row["cpu_ns"] for _, row in table[table["kind"] == "range"].iterrows()}
        step = times.pop(STEP, 0)
        if within := sum(times.get(name, 0) for name in GENERATING):
            times[FORWARD[0]] -= within
        times[REST] = max(step - sum(times.values()), 0)
        return "cpu", {name: (ns, None) for name, ns in times.items() if ns or name != REST}
    kept = table[table["kind"] == "kernel"]
    grouped = kept.assign(range=kept["range"].fillna("")).groupby("range")[["device_ns", "count"]].sum()
    return "gpu", {name: tuple(values) for name, values in zip(grouped.index, grouped.to_numpy(), strict=True)}
