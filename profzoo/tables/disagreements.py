"""Flags cells on which tools disagree, with the cause if it is known."""

import pandas as pd

from profzoo import tools
from profzoo.tables.schemas import CELL

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
# The least spread, (largest - smallest) / largest, that is flagged.
LAUNCHES, TIME = 0.02, 0.10
# ns that a launch takes longer under ncu, alone on a GPU that is idle before and after it: the middle half of 42 cells
# on an H200 had 690 to 930 (docs/measured/agreement.md); what is within this is put down to it.
ALONE_NS = (300.0, 1500.0)
UNKNOWN = "unknown: compare the tools' rows of the cell in activity.csv"


def explain_disagreements(agreement: pd.DataFrame, coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the table of agreement with `flag` (launches, time, both or empty) and `cause`.

    coverage: the table of coverage, in which it shows where runs launched different kernels.
    """
    chosen = coverage[coverage["other_choice"].eq(True)] if "other_choice" in coverage else coverage[:0]
    elsewhere = {(row.model, row.phase): row.missing for row in chosen.itertuples()}
    flags, causes = [], []
    for _, row in agreement.iterrows():
        found = {
            "launches": row["launches_spread"] > LAUNCHES,
            "time": row["gpu_ns_spread"] > TIME,
        }
        reasons = []
        if any(found.values()) and tuple(row[CELL]) in elsewhere:
            missing = elsewhere[tuple(row[CELL])]
            named = f" ({missing})" if isinstance(missing, str) and missing else ""
            reasons.append(f"the runs launched different kernels{named}: deterministic: true makes them the same")
        elif found["launches"]:
            reasons.append(UNKNOWN)
        elif found["time"]:
            reasons.append(_alone(row) or UNKNOWN)
        flags.append(", ".join(name for name, holds in found.items() if holds))
        causes.append("; ".join(reasons))
    return agreement.assign(flag=flags, cause=causes)


def _alone(row: pd.Series) -> str | None:
    """Return the cause if a tool's longer time is explained by launches that run alone; else None."""
    compared = tools.compared_activities()
    beside = {name: row.get(f"{name}_gpu_ns") for name, activity in compared.items() if not activity.ALONE}
    others = [ns for ns in beside.values() if pd.notna(ns)]
    for tool in [name for name, activity in compared.items() if activity.ALONE]:
        launches = row.get(f"{tool}_launches")
        if not others or pd.isna(row.get(f"{tool}_gpu_ns")) or not launches:
            continue
        each = (row[f"{tool}_gpu_ns"] - min(others)) / launches
        if ALONE_NS[0] <= each <= ALONE_NS[1]:
            return (
                f"under {tool} each launch runs alone and takes {each / 1e3:.1f} µs more, beside "
                f"{min(others) / launches / 1e3:.1f} µs: take times from {next(iter(beside))}"
            )
    return None
