"""Says which layers hold a cell back, and what would help each, by its own kernels and by what it needs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from profzoo.tables.layers import NODE
from profzoo.verdicts import expecting
from profzoo.verdicts.judged import LAYER, Judged
from profzoo.verdicts.traits import with_traits

# So many layers are named, those first from which most is to be had.
TOP = 10
PADDED = "padded"
# Of products and convolutions, which tiles are made for.
TILED = ("convolution", "gemm")


def top(judged: Judged, kernels: pd.DataFrame, tree: pd.DataFrame, peaks: Mapping[str, float]) -> list[dict[str, Any]]:
    """The verdicts on the TOP layers of a cell, forward and backward apart, the largest gain first, one each.

    Args:
        kernels: rows of its layer-kernels.csv; tree: rows of its layers.csv; peaks: rates by name, flop/s.
    """
    if kernels.empty:
        return []
    traits = with_traits(kernels, kernels.assign(level="launch"), judged.given["traits"], peaks)
    total, work = traits["total_ns"].sum(), _work(tree)
    found = []
    for (module, direction), own in traits.groupby(NODE, sort=False):
        rows = [_told(rule, row, own) for rule, row in judged.of_some(own, total, LAYER)]
        rows += _padded(judged, own, total, work.get((module, direction), 1.0))
        if rows:
            largest = own.iloc[own["total_ns"].argmax()]
            best = max(rows, key=lambda row: row["gain"] or 0)
            where = {"module": module, "direction": direction, "class": largest["class"]}
            found.append({**where, "function": largest["function"], **best})
    # Running a step again takes longer than Amdahl's law, by which the layers are chosen.
    chosen = sorted(found, key=lambda row: -(row["gain"] or 0))[:TOP]
    return sorted(map(judged.expect, chosen), key=lambda row: -(row["gain"] or 0))


def _work(tree: pd.DataFrame) -> dict[tuple[str, str], float]:
    """By module and direction, operations counted over those needed, where all of both are known and are its own."""
    own = tree[(tree["self_ns"] >= 0.99 * tree["total_ns"]) & (tree["needed_share"] > 0.99) & (tree["needed_flop"] > 0)]
    own = own[own["counted_share"] > 0.99].set_index(NODE)
    return ((own["simt_flop"] + own["tensor_flop"]) / own["needed_flop"]).to_dict()


def _padded(judged: Judged, own: pd.DataFrame, total: float, ratio: float) -> list[dict[str, Any]]:
    """That a layer computes more than it needs, where that is what its time goes into."""
    least = judged.given["traits"][PADDED]["flop_at_least"]
    tiled = own[own["class"].isin(TILED) & own["bound"].isin(("simt", "tensor"))]
    if ratio < least or tiled.empty:
        return []
    (rule,) = (one for one in judged.given["rules"] if one["of"] == "layers" and one["share"] == PADDED)
    row = judged.row({**rule, "cured": 1 - 1 / ratio}, judged.share_of(tiled, total), tiled, LAYER, "layers.csv: flop")
    lead = f"{ratio:.1f} times the operations that it needs, with inputs {_shapes(tiled)}"
    return [row | {"value": ratio, "threshold": least, "metric": "operations counted / needed",
                   expecting.LEAD: f"{lead}: "}]  # fmt: skip


def _told(rule: Mapping[str, Any], row: dict[str, Any], own: pd.DataFrame) -> dict[str, Any]:
    """The verdict with what is to be seen of the layer."""
    chosen = own[own[f"{rule['share']}_ns"] > 0]
    first = chosen.iloc[chosen["total_ns"].argmax()]
    efficiency = f"{(chosen['efficiency'] * chosen['total_ns']).sum() / chosen['total_ns'].sum():.0%}"
    calls = chosen["launches"].sum()
    leads = {
        "short": f"{calls:,.0f} kernels of {chosen['total_ns'].sum() / calls / 1e3:.1f} µs"
        f" ({', '.join(sorted(chosen['class'].unique()))})",
        "small_grid": f"{first['grid_x'] * first['grid_y'] * first['grid_z']:,.0f} blocks for"
        f" {first.get('multiprocessors', float('nan')):.0f} multiprocessors",
        "memory": f"at {efficiency} of what {'DRAM' if first['bound'] == 'dram' else 'L2'} can do",
        "simt": f"{first['operator']} {_shapes(chosen)} runs without tensor cores, at {efficiency} of what it could",
        "tensor": f"at {efficiency} of what tensor cores can do",
        "underused": f"{first['operator']} {_shapes(chosen)} at {efficiency} of the nearest roof",
    }
    lead = leads.get(rule["share"], f"{first['operator']} {_shapes(chosen)}")
    return row | {expecting.LEAD: f"{lead}: "}


def _shapes(rows: pd.DataFrame) -> str:
    """Shapes of the first two inputs of the operator that takes longest."""
    shapes = rows.groupby("shapes", sort=False)["total_ns"].sum().idxmax()
    first = shapes.removeprefix("[").split("]")[:2]
    return " and ".join(part.strip(", ").removeprefix("[").replace(", ", "x") for part in first if part.strip(", []"))
