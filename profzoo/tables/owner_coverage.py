"""Computes how much of a step's GPU time has an owning layer, and how much other tools saw launch by launch."""

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.launches.cross_tool import aligned_shares
from profzoo.launches.joined_step import UNALIGNED, Joined
from profzoo.launches.step_joining import BY
from profzoo.tables import dictionary

# Owners that name neither a module nor a part of the step.
UNNAMED = ("(graph)", "(outside)", "(step)", UNALIGNED)
SHARES = ["operator_share", "module_share", "aligned_launches", "aligned_share", "nsys_share"]
COLUMNS = ["launches", "total_ns", *SHARES, "unowned"]
TABLE = Table(
    columns=dict.fromkeys(["launches", "total_ns"], column_types.AMOUNT)
    | dict.fromkeys(SHARES, column_types.or_missing(column_types.AMOUNT))
    | {"unowned": column_types.TEXT},
    about=dictionary.OWNERS,
)


def make_owner_coverage(called: pd.DataFrame, joined: Joined | None) -> pd.DataFrame:
    """Return one row: launches and GPU time per step, and the shares of the time with an owner.

    `operator_share` and `module_share` are the shares of the time with a known operator, and with a module or another
    named owner. `aligned_launches`, `aligned_share` and `nsys_share` are shares of kernels, empty without other tools.
    `unowned` names the operators with the most time that has no named owner.

    Args:
        called: sums by owner, from layers.sum_by_owner or layers.apply_other_times.
        joined: launches of other tools; None without them.
    """
    ns, module = called["total_ns"], called["module"].astype("str")
    total, named = max(float(ns.sum()), 1.0), ~module.isin(UNNAMED)
    lacking = called[~named].groupby("operator", observed=True)["total_ns"].sum().sort_values(ascending=False)
    row = {
        "launches": called["launches"].sum(),
        "total_ns": ns.sum(),
        "operator_share": ns[called["operator"] != ""].sum() / total,
        "module_share": ns[named].sum() / total,
        "unowned": ", ".join(f"{name or 'no operator'} {share:.1%}" for name, share in (lacking / total)[:3].items()),
    }
    if joined is not None:
        kernels = joined.launches
        row["aligned_launches"], row["aligned_share"] = aligned_shares(kernels[BY] != "", kernels["ns"])
        if "nsys_ns" in kernels:
            _, row["nsys_share"] = aligned_shares(kernels["nsys_ns"].notna(), kernels["ns"])
    return pd.DataFrame([row]).reindex(columns=COLUMNS)
