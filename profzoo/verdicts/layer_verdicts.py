"""Judge the layers of a cell by their own kernels and by the operations that their shapes call for."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from profzoo.tables.layers import NODE
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.verdicts.rule_evaluation import LAYER_LEVEL, CellRules
from profzoo.verdicts.rule_types import Rule
from profzoo.verdicts.verdict import Verdict

# So many layers are named, those first from which most is to be had.
TOP = 10
PADDED = "padded"
# Of products and convolutions, which tiles are made for.
TILED = ("convolution", "gemm")


def judge_top_layers(
    judged: CellRules, kernels: pd.DataFrame, tree: pd.DataFrame, peaks: Mapping[str, float]
) -> list[Verdict]:
    """Return one verdict for each of the TOP layers of a cell, forward and backward separately, largest gain first.

    Args:
        kernels: rows of its layer-kernels.csv; tree: rows of its layers.csv; peaks: rates by name, flop/s.
    """
    if kernels.empty:
        return []
    traits = mark_traits(kernels, kernels.assign(level="launch"), judged.given["traits"], peaks)
    total, work = traits["total_ns"].sum(), _work(tree)
    layers = traits.groupby(NODE, sort=False)
    summed = judged.summed(layers)
    most = judged.most(summed, total).sort_values(ascending=False, kind="stable")
    sums = summed.to_dict("index")
    found: list[tuple[tuple[str, str], Verdict, Rule]] = []
    for node, gain in most.items():
        # The rest gains less than what was found, whatever holds it.
        if len(found) >= TOP and gain <= sorted(row.sorting_gain for _, row, _ in found)[-TOP]:
            break
        own = layers.get_group(node)
        rows = [
            *judged.of_some(own, total, LAYER_LEVEL, sums[node]),
            *_padded_share(judged, own, total, work.get(node, 1.0)),
        ]
        if rows:
            rule, best = max(rows, key=lambda one: one[1].sorting_gain)
            found.append((node, best, rule))
    # Running a step again takes longer than Amdahl's law, by which the layers are chosen.
    chosen = sorted(found, key=lambda one: -one[1].sorting_gain)[:TOP]
    told = [_describe_layer(rule, row, node, layers.get_group(node)) for node, row, rule in chosen]
    return sorted(map(judged.expect, told), key=lambda row: -row.sorting_gain)


def _work(tree: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return counted over needed operations by module and direction, where both are completely known."""
    own = tree[(tree["self_ns"] >= 0.99 * tree["total_ns"]) & (tree["needed_share"] > 0.99) & (tree["needed_flop"] > 0)]
    own = own[own["counted_share"] > 0.99].set_index(NODE)
    return ((own["simt_flop"] + own["tensor_flop"]) / own["needed_flop"]).to_dict()


def _padded_share(judged: CellRules, own: pd.DataFrame, total: float, ratio: float) -> list[tuple[Rule, Verdict]]:
    """Return the verdict that a layer computes more than its shapes call for; empty if that is not its problem."""
    least = judged.given["traits"]["padded"]["flop_at_least"]
    if ratio < least or (tiled := _is_tiled(own)).empty:
        return []
    (rule,) = (one for one in judged.given["rules"] if one["of"] == "layers" and one["share"] == PADDED)
    row = judged.row(
        {**rule, "cured": 1 - 1 / ratio}, judged.share_of(tiled, total), tiled, LAYER_LEVEL, "layers.csv: flop"
    )
    return [(rule, replace(row, value=ratio, threshold=least, metric="operations counted / needed"))]


def _is_tiled(own: pd.DataFrame) -> pd.DataFrame:
    return own[own["class"].isin(TILED) & own["bound"].isin(("simt", "tensor"))]


def _describe_layer(rule: Rule, row: Verdict, node: tuple[str, str], own: pd.DataFrame) -> Verdict:
    """Add the layer's name and a description of it to its verdict."""
    largest = own.iloc[own["total_ns"].argmax()]
    return replace(
        row,
        module=node[0],
        direction=node[1],
        kernel_class=largest["class"],
        function=largest["function"],
        lead=f"{_counted_rows(rule, row, own)}: ",
    )


def _counted_rows(rule: Rule, row: Verdict, own: pd.DataFrame) -> str:
    if rule["of"] == "layers":
        return f"{row.value:.1f} times the operations that it needs, with inputs {_shapes(_is_tiled(own))}"
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
    return leads.get(rule["share"], f"{first['operator']} {_shapes(chosen)}")


def _shapes(rows: pd.DataFrame) -> str:
    """Format the shapes of the first two inputs of the operator that takes longest."""
    shapes = rows.groupby("shapes", sort=False)["total_ns"].sum().idxmax()
    first = shapes.removeprefix("[").split("]")[:2]
    return " and ".join(part.strip(", ").removeprefix("[").replace(", ", "x") for part in first if part.strip(", []"))
