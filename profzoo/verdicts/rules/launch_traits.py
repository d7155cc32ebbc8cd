"""Add the traits of a cell's launches: too short, too small a grid, close to a roof, far from every roof."""

import functools
import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from profzoo.tools.ncu.estimates import EIGHT_BITS, QUANTITIES, SECTOR
from profzoo.verdicts import gain_models
from profzoo.verdicts.rules.rule_types import Cause, Traits

# Find the launches that match a cause of rules.yaml: by counters, their shares, kernel classes and kernel names.

MEMORY_WAYS = ("load", "store")


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    return table.reindex(columns=[name])[name].astype("float64")


def _share(table: pd.DataFrame, part: str, whole: str, factor: float = 1.0) -> pd.Series:
    return factor * _column(table, part) / _column(table, whole).where(_column(table, whole) > 0)


def _tail(table: pd.DataFrame) -> pd.Series:
    """Return the idle share of a launch's waves: 1.2 waves of blocks take the time of 2."""
    waves = _column(table, "waves")
    return 1 - waves / np.ceil(waves).where(waves > 1)


def _unused(table: pd.DataFrame) -> pd.Series:
    """Return the share of sectors that a kernel would not move if neighbouring threads read neighbouring addresses.

    Each request needs one sector at least.
    """
    without = [
        _column(table, f"{way}_sectors")
        - np.maximum(_column(table, f"{way}_requests"), _column(table, f"{way}_needed_sectors"))
        for way in MEMORY_WAYS
    ]
    own = sum(_column(table, f"{way}_sectors").fillna(0) for way in MEMORY_WAYS)
    # Whole tiles that come to shared memory by themselves are seen by L2 alone; what L1 holds, by L1.
    moved = np.fmax(own, _column(table, "l2_sectors"))
    return pd.concat(without, axis=1).sum(axis=1, min_count=1) / moved.where(moved > 0)


def _off_tensor_cores(table: pd.DataFrame) -> pd.Series:
    """Return 1 for launches that compute, but not on tensor cores, and 0 for other launches."""
    # Products in 8 bits are counted in cells that have them.
    tensor = sum(
        _column(table, name).fillna(0 if name in EIGHT_BITS else math.nan)
        for name in QUANTITIES
        if name.startswith("tensor_") and name in table
    )
    flop = _column(table, "fp32_flop") + _column(table, "fp16_flop").fillna(0)
    known = flop.notna() & (pd.Series(tensor, table.index).notna() if "tensor_tf32_flop" in table else False)
    return ((flop > 0) & (tensor == 0)).astype("float64").where(known)


# Shares that conditions may be about beside quantities.
SHARE_FORMULAS: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "unused_sectors": _unused,
    "conflicts": lambda table: _share(table, "bank_conflicts", "shared_wavefronts"),
    "spilled": lambda table: _share(table, "local_sectors", "l1_bytes", SECTOR),
    "tail": _tail,
    "off_tensor_cores": _off_tensor_cores,
    **{
        f"stalled_{reason}": functools.partial(_share, part=f"stall_{reason}_cycles", whole="warp_cycles")
        for reason in ("memory", "shared", "barrier", "math")
    },
}
CONDITIONS = (*SHARE_FORMULAS, *QUANTITIES)


# Column with the part of the time of launches, 0 to 1, in which a library or compiler tries them.
TRIED = "tried"


def _own_time(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return time in ns and number of each row's launches, without those that are tried."""
    kept = 1 - table[TRIED] if TRIED in table else 1.0
    return table["total_ns"].fillna(0.0) * kept, table["launches"] * kept


def mark_causes(table: pd.DataFrame, causes: Mapping[str, Cause]) -> pd.DataFrame:
    """Add, per cause, the GPU time of matching launches and the time that removing the cause would save, in ns.

    Columns added: `{cause}_ns`, `_least_ns` and `_most_ns`, which are the same, `_launches`, and `_saved_ns` where the
    first condition is about a share: that share of the time. What is not known of a launch does not hold.

    >>> table = pd.DataFrame({"waves": [1.2, 8.9], "total_ns": [100.0, 100.0], "launches": [1, 1], "class": "gemm"})
    >>> found = mark_causes(table, {"tail": {"when": {"tail": {"at_least": 0.2}}}})
    >>> found[["tail_ns", "tail_saved_ns"]].to_numpy().tolist()
    [[100.0, 40.0], [0.0, 0.0]]
    """
    columns: dict[str, pd.Series] = {}
    total, launches = _own_time(table)
    shown = next((name for name in ("kernel", "function") if name in table), None)
    names = table[shown].astype("str") if shown else pd.Series("", table.index)
    for cause, wanted in causes.items():
        holds, saved = pd.Series(True, table.index), None
        for place, (name, bounds) in enumerate(wanted.get("when", {}).items()):
            values = SHARE_FORMULAS[name](table) if name in SHARE_FORMULAS else _column(table, name)
            holds &= values.ge(bounds["at_least"]) if "at_least" in bounds else values.lt(bounds["below"])
            if not place and name in SHARE_FORMULAS:
                saved = values
        if "classes" in wanted:
            holds &= table["class"].isin(wanted["classes"])
        if "match" in wanted:
            found = {name: bool(re.search(wanted["match"], name)) for name in names.unique()}
            holds &= names.map(found).astype(bool)
        columns |= {f"{cause}{of}_ns": total.where(holds, 0.0) for of in ("", "_least", "_most")}
        if saved is not None:
            columns[f"{cause}_saved_ns"] = total * saved.where(holds, 0.0)
        columns[f"{cause}_launches"] = launches.where(holds, 0.0)
    return table.assign(**columns)


COMMUNICATION = "communication"
ENDS = ("efficiency_low", "efficiency_high")
ROOFLINE_COLUMNS = ("bound", "efficiency", *gain_models.ROOFS)


def mark_traits(
    kernels: pd.DataFrame, roofline: pd.DataFrame | None, traits: Traits, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return a cell's kernel table with the time that has each trait and the time that its cure would save, in ns.

    Communication kernels are left out: ncu cannot replay their waits. Launches that are tried have no trait.

    Args:
        kernels: the kernel table of a cell, with TRIED where that is known; roofline: the table of that name, None
            without counters; traits: as rules.yaml has them; peaks: rates by name, flop/s.

    Columns added: for each trait `{trait}_ns` and `{trait}_launches`; `{trait}_least_ns` and `{trait}_most_ns`, what
    has it at both ends of the interval of its efficiency, and what has it at one of them; `{trait}_saved_ns` where the
    saving depends on the launch; `counted_ns`, the time of launches with counters; bound, efficiency and what a launch
    takes at least by each roof, where that is known.

    On a GPU of 132 multiprocessors: launches of 2 µs, a product in 33 blocks, a copy at 80 % of DRAM's bandwidth. Four
    times as many blocks would take the product no longer, so that three quarters of its time could be saved.

    >>> from profzoo.verdicts.rules import rules
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
    (total, launches), blocks = _own_time(table), _blocks_per_multiprocessor(table)
    ends = [_add_interval_traits(table, blocks, bound, held[side][chosen].fillna(efficiency), traits) for side in ENDS]
    for name, holds in _add_interval_traits(table, blocks, bound, efficiency, traits).items():
        table[f"{name}_ns"] = total.where(holds, 0.0)
        table[f"{name}_least_ns"] = total.where(ends[0][name] & ends[1][name], 0.0)
        table[f"{name}_most_ns"] = total.where(ends[0][name] | ends[1][name] | holds, 0.0)
        table[f"{name}_launches"] = launches.where(holds, 0.0)
    # As many blocks as there are multiprocessors would have taken no longer.
    table["small_grid_saved_ns"] = table["small_grid_ns"] * (1 - blocks.clip(upper=1).fillna(1))
    roof = traits["at_the_roof"]["efficiency_at_least"]
    table["underused_saved_ns"] = table["underused_ns"] * (1 - efficiency.fillna(roof) / roof)
    if {"fp32", "tf32"} <= set(peaks):
        table["simt_saved_ns"] = table["simt_ns"] * max(1 - peaks["fp32"] / peaks["tf32"], 0.0)
    table["counted_ns"] = table["total_ns"].fillna(0.0).where(efficiency.notna(), 0.0)
    return mark_causes(table, traits["causes"])


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
        nothing = dict.fromkeys(("efficiency", *ENDS, *gain_models.ROOFS), float("nan"))
        return pd.DataFrame({"bound": "", **nothing}, kernels.index)
    rows = roofline[roofline["level"] == "launch"]
    rows = rows.rename(columns={roof.removeprefix(gain_models.ROOF): roof for roof in gain_models.ROOFS})
    return rows.reindex(columns=[*ROOFLINE_COLUMNS, *ENDS]).fillna({"bound": ""}).set_axis(kernels.index)
