"""Add the traits of a cell's launches: too short, too small a grid, close to a roof, far from every roof."""

from collections.abc import Mapping

import pandas as pd

from profzoo.verdicts import launch_causes, reduced_precision
from profzoo.verdicts.rule_types import Traits

COMMUNICATION = "communication"
ENDS = ("efficiency_low", "efficiency_high")
ROOFLINE_COLUMNS = ("bound", "efficiency", *reduced_precision.ROOFS)


def mark_traits(
    kernels: pd.DataFrame, roofline: pd.DataFrame | None, traits: Traits, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return a cell's kernel table with the time that has each trait and the time that its cure would save, in ns.

    Communication kernels are left out: they wait for other processes, and ncu cannot replay them.

    Args:
        kernels: the kernel table of a cell; roofline: the table of that name, None without counters; traits: as
            rules.yaml has them; peaks: rates by name, flop/s.

    Columns added: for each trait `{trait}_ns` and `{trait}_launches`; `{trait}_least_ns` and `{trait}_most_ns`, what
    has it at both ends of the interval of its efficiency, and what has it at one of them; `{trait}_saved_ns` where the
    saving depends on the launch; `counted_ns`, the time of launches with counters; bound, efficiency and what a launch
    takes at least by each roof, where that is known.

    On a GPU of 132 multiprocessors: launches of 2 µs, a product in 33 blocks, a copy at 80 % of DRAM's bandwidth. Four
    times as many blocks would take the product no longer, so that three quarters of its time could be saved.

    >>> from profzoo.verdicts import rules
    >>> kernels = pd.DataFrame({"class": ["elementwise", "gemm", "copy"], "mean_ns": [2e3, 5e4, 5e4]})
    >>> kernels = kernels.assign(launches=10, total_ns=kernels["mean_ns"] * 10, multiprocessors=132)
    >>> kernels = kernels.assign(grid_x=[132, 33, 1320], grid_y=1, grid_z=1)
    >>> counted = pd.DataFrame({"level": "launch", "bound": ["dram", "simt", "dram"], "efficiency": [0.2, 0.1, 0.8]})
    >>> table = mark_traits(kernels, counted, rules.load_rules()["traits"], {})
    >>> table[["class", "short_ns", "small_grid_ns", "small_grid_saved_ns", "memory_ns"]]
             class  short_ns  small_grid_ns  small_grid_saved_ns  memory_ns
    0  elementwise   20000.0            0.0                  0.0        0.0
    1         gemm       0.0       500000.0             375000.0        0.0
    2         copy       0.0            0.0                  0.0   500000.0
    """
    held = _add_roofline_traits(kernels, roofline)
    chosen = kernels["class"] != COMMUNICATION
    table, bound, efficiency = kernels[chosen].copy(), held["bound"][chosen], held["efficiency"][chosen]
    table[list(ROOFLINE_COLUMNS)] = held.loc[chosen, list(ROOFLINE_COLUMNS)]
    total, blocks = table["total_ns"].fillna(0.0), _blocks_per_multiprocessor(table)
    ends = [_add_interval_traits(table, blocks, bound, held[side][chosen].fillna(efficiency), traits) for side in ENDS]
    for name, holds in _add_interval_traits(table, blocks, bound, efficiency, traits).items():
        table[f"{name}_ns"] = total.where(holds, 0.0)
        table[f"{name}_least_ns"] = total.where(ends[0][name] & ends[1][name], 0.0)
        table[f"{name}_most_ns"] = total.where(ends[0][name] | ends[1][name] | holds, 0.0)
        table[f"{name}_launches"] = table["launches"].where(holds, 0.0)
    # As many blocks as there are multiprocessors would have taken no longer.
    table["small_grid_saved_ns"] = table["small_grid_ns"] * (1 - blocks.clip(upper=1).fillna(1))
    roof = traits["at_the_roof"]["efficiency_at_least"]
    table["underused_saved_ns"] = table["underused_ns"] * (1 - efficiency.fillna(roof) / roof)
    if {"fp32", "tf32"} <= set(peaks):
        table["simt_saved_ns"] = table["simt_ns"] * max(1 - peaks["fp32"] / peaks["tf32"], 0.0)
    table["counted_ns"] = total.where(efficiency.notna(), 0.0)
    return launch_causes.mark_causes(table, traits["causes"])


def _blocks_per_multiprocessor(table: pd.DataFrame) -> pd.Series:
    """Return blocks per multiprocessor; nan without ncu."""
    multiprocessors = table.reindex(columns=["multiprocessors"])["multiprocessors"]
    return table["grid_x"] * table["grid_y"] * table["grid_z"] / multiprocessors


def _add_interval_traits(
    table: pd.DataFrame, blocks: pd.Series, bound: pd.Series, efficiency: pd.Series, traits: Traits
) -> dict[str, pd.Series]:
    """Return by trait which launches have it, as booleans; no launch has two traits.

    What is short is nothing else. What is near a roof has that trait, however few its blocks; of the rest, few blocks
    come before being far from every roof, which they explain.
    """
    short = table["class"].isin(traits["short"]["classes"]) & table["mean_ns"].lt(traits["short"]["mean_ns_below"])
    near = efficiency.ge(traits["at_the_roof"]["efficiency_at_least"]) & ~short
    few_blocks = blocks.lt(traits["small_grid"]["blocks_below"]) & ~short
    far = efficiency.lt(traits["far_from_the_roof"]["efficiency_below"]) & ~short
    return {
        "short": short,
        "small_grid": few_blocks & ~near,
        "memory": near & bound.isin(("dram", "l2")),
        "simt": near & (bound == "simt"),
        "tensor": near & (bound == "tensor"),
        "underused": far & ~few_blocks,
    }


def _add_roofline_traits(kernels: pd.DataFrame, roofline: pd.DataFrame | None) -> pd.DataFrame:
    """Return bound, efficiency and its interval for each row of the kernel table, by the roofline table."""
    if roofline is None or not len(roofline):
        nothing = dict.fromkeys(("efficiency", *ENDS, *reduced_precision.ROOFS), float("nan"))
        return pd.DataFrame({"bound": "", **nothing}, kernels.index)
    rows = roofline[roofline["level"] == "launch"]
    rows = rows.rename(columns={roof.removeprefix(reduced_precision.ROOF): roof for roof in reduced_precision.ROOFS})
    return rows.reindex(columns=[*ROOFLINE_COLUMNS, *ENDS]).fillna({"bound": ""}).set_axis(kernels.index)
