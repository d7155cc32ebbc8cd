"""Simulates a traced step with chains fused: one launch stays with the fused time, the others go with their calls."""

import numpy as np
import pandas as pd

from profzoo.fusion.joining import KEYS, NUMBER, STAYS
from profzoo.what_if import changes
from profzoo.what_if.kernel_matching import Operations, spread_evenly
from profzoo.what_if.program import Program

# The least share of the chains' time that must be found in the trace for a prediction.
LEAST_FOUND_SHARE = 0.8


def fuse_chains(operations: Operations, kernels: pd.DataFrame, fused_ns: pd.Series) -> Program | None:
    """Return the program with chains fused; None if it lacks the launches that they consist of.

    Args:
        operations: of the program.
        kernels: rows of the chains' kernels, from joining.join_chains.
        fused_ns: GPU time per step of the fused kernels, by number of the chain.
    """
    program = operations.program
    rows = _with_ratios(kernels, fused_ns)
    if rows.empty:
        return None
    places = operations.of(rows)
    chosen = places >= 0
    ns = program.gpu["ns"].to_numpy(dtype=float)
    if ns[chosen].sum() < LEAST_FOUND_SHARE * rows["total_ns"].sum() * program.steps:
        return None
    stays = chosen & spread_evenly(places, rows[STAYS].to_numpy(dtype=float) * program.steps)
    ratio = rows["ratio"].to_numpy(dtype=float)[places]
    longer = changes.speed_up_kernels(program, stays, 1 / np.where(stays, np.maximum(ratio, 1e-9), 1.0))
    return changes.fuse(longer, chosen & ~stays, 1.0)


def _with_ratios(kernels: pd.DataFrame, fused_ns: pd.Series) -> pd.DataFrame:
    """Return a row per range and configuration, with the fused time over the measured one of the launches that stay."""
    kept = kernels["total_ns"] / kernels["launches"] * kernels[STAYS]
    whole = kept.groupby(kernels[NUMBER]).sum()
    ratios = kernels[NUMBER].map(fused_ns / whole.where(whole > 0)).fillna(0.0)
    table = kernels.assign(new_ns=kept * ratios, kept_ns=kept)
    sums = table.groupby(KEYS, sort=False, dropna=False)[["launches", "total_ns", STAYS, "new_ns", "kept_ns"]].sum()
    rows = sums.reset_index()
    return rows.assign(ratio=(rows["new_ns"] / rows["kept_ns"].where(rows["kept_ns"] > 0)).fillna(1.0))
