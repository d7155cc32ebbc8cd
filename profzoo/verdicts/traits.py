"""Marks the launches of a cell by what is wrong with them: too short, too small a grid, at a roof, far from one."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

COMMUNICATION = "communication"


def with_traits(
    kernels: pd.DataFrame, roofline: pd.DataFrame | None, traits: Mapping[str, Any], peaks: Mapping[str, float]
) -> pd.DataFrame:
    """The rows of one cell's kernel table, with the time that has each trait, and the part of it that a cure saves.

    Kernels that communicate are left out: they wait for other processes, and ncu cannot replay them.

    Columns added: for each trait `{trait}_ns`, and `{trait}_saved_ns` where the saving depends on the launch;
    `counted_ns`, the time of launches with counters. Traits exclude each other: what is short comes first, then a small
    grid.
    """
    held = _held(kernels, roofline)
    table = kernels.assign(bound=held["bound"], efficiency=held["efficiency"])
    table = table[table["class"] != COMMUNICATION]
    total = table["total_ns"].fillna(0.0)
    # Blocks that each multiprocessor gets; not known without ncu.
    known = table.reindex(columns=["multiprocessors"]).iloc[:, 0]
    blocks = table["grid_x"] * table["grid_y"] * table["grid_z"] / known
    bound, efficiency = table.pop("bound"), table.pop("efficiency")
    short = table["class"].isin(traits["short"]["classes"]) & table["mean_ns"].lt(traits["short"]["mean_ns_below"])
    near = efficiency.ge(traits["at_the_roof"]["efficiency_at_least"]) & ~short
    small = blocks.lt(traits["small_grid"]["blocks_below"]) & ~short
    far = efficiency.lt(traits["far_from_the_roof"]["efficiency_below"]) & ~short
    when = {
        "short": short,
        "small_grid": small & ~near,
        "memory": near & bound.isin(("dram", "l2")),
        "simt": near & (bound == "simt"),
        "tensor": near & (bound == "tensor"),
        "underused": far & ~small,
    }
    for name, holds in when.items():
        table[f"{name}_ns"] = total.where(holds, 0.0)
        table[f"{name}_launches"] = table["launches"].where(holds, 0.0)
    # As many blocks as there are multiprocessors would have taken no longer.
    table["small_grid_saved_ns"] = table["small_grid_ns"] * (1 - blocks.clip(upper=1).fillna(1))
    roof = traits["at_the_roof"]["efficiency_at_least"]
    table["underused_saved_ns"] = table["underused_ns"] * (1 - efficiency.fillna(roof) / roof)
    if {"fp32", "tf32"} <= set(peaks):
        table["simt_saved_ns"] = table["simt_ns"] * max(1 - peaks["fp32"] / peaks["tf32"], 0.0)
    table["counted_ns"] = total.where(efficiency.notna(), 0.0)
    return table


def _held(kernels: pd.DataFrame, roofline: pd.DataFrame | None) -> pd.DataFrame:
    """Bound and efficiency of each row of the kernel table; the table of the roofline has a row for each."""
    if roofline is None or not len(roofline):
        return pd.DataFrame({"bound": "", "efficiency": float("nan")}, kernels.index)
    rows = roofline[roofline["level"] == "launch"]
    return rows[["bound", "efficiency"]].fillna({"bound": ""}).set_axis(kernels.index)
