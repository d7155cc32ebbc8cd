"""Find the launches that match a cause of rules.yaml: by counters, their shares, kernel classes and kernel names."""

import functools
import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from profzoo.tools.ncu.derived_metrics import EIGHT_BITS, QUANTITIES, SECTOR
from profzoo.verdicts.rule_types import Cause

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
    total = table["total_ns"].fillna(0.0)
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
        columns[f"{cause}_launches"] = table["launches"].where(holds, 0.0)
    return table.assign(**columns)
