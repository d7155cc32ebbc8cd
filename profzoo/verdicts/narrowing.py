"""Says what of each launch's time goes with narrower operands: tf32 or bf16, by the roofs that it is held against.

Products then run by other kernels, on tensor cores; all else runs by the same ones on fewer bytes.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

# What tensor cores compute, and what autocast leaves in fp32 or does not reach.
PRODUCTS = ("gemm", "convolution", "recurrent", "attention")
UNTOUCHED = ("optimizer", "communication")
PASSES = ("forward", "backward")
# A launch takes as long, however little it does: the shortest tenth of the zoo's elementwise kernels on an H200.
SHORTEST_NS = 2_000.0
# A cast that autocast adds, which is such a kernel.
CAST_NS = SHORTEST_NS
# What of the rates of tensor cores and of DRAM those kernels reach: fitted to training steps of UNet and VGG19, which
# tf32 made 3.1 and 2.7 times as fast (H200, docs/measured/h200.md).
REACHED_OPERATIONS, REACHED_BYTES = 0.6, 0.8
# Columns with the ns that a launch takes at least by each roof; of the table of the roofline without the first word.
ROOF = "roof_"
ROOFS = tuple(f"{ROOF}{name}_ns" for name in ("dram", "l2", "simt", "tensor"))
TO = ("tf32", "bf16")


def saved(rows: pd.DataFrame, peaks: Mapping[str, float], to: str, now: str) -> pd.Series:
    """The part of each row's time that goes; 0 where nothing is known of it.

    Of a product, what is beyond its operations or bytes at the rates that such kernels reach. Anything else gets
    shorter by as much as its nearest roof is lowered, and what keeps it from that roof stays.

    Args:
        rows: launches with class, mean_ns, bound, efficiency and, where known, range and ROOFS; peaks: rates by name,
            flop/s; to: of TO; now: the cell's precision.

    A convolution that takes 100 us, 60 of which fp32 would at its peak, on tensor cores ten times as fast:

    >>> rows = pd.DataFrame({"class": ["convolution"], "mean_ns": 1e5, "bound": "simt", "efficiency": 0.6})
    >>> saved(rows, {"fp32": 50, "tf32": 500}, "tf32", "fp32").round(2).tolist()
    [0.9]
    """
    before = _roofs(rows)
    products = rows["class"].isin(PRODUCTS)
    if "range" in rows:
        products &= rows["range"].isin(PASSES) | rows["range"].eq("graph")
    after = before.copy()
    if {"fp32", to} <= set(peaks):
        after.loc[products, "roof_simt_ns"] *= min(peaks["fp32"] / peaks[to], 1.0)
    if to == "bf16":
        narrower = products | ~rows["class"].isin((*PRODUCTS, *UNTOUCHED))
        if "range" in rows:
            narrower &= rows["range"].isin(PASSES) | rows["range"].eq("graph")
        after.loc[narrower, ["roof_dram_ns", "roof_l2_ns"]] /= 2
        if now == "tf32" and {"tf32", "bf16"} <= set(peaks):
            after.loc[products, "roof_tensor_ns"] *= min(peaks["tf32"] / peaks["bf16"], 1.0)
    sooner = (before.max(axis=1) - after.max(axis=1)).clip(lower=0)
    operations = ["roof_simt_ns", "roof_tensor_ns"]
    others = products & (before[operations].max(axis=1) > after[operations].max(axis=1))
    reached = after[operations].max(axis=1) / REACHED_OPERATIONS
    least = np.maximum(reached, after["roof_dram_ns"] / REACHED_BYTES)
    sooner = sooner.where(~others, (rows["mean_ns"] - least).clip(lower=0)).fillna(0.0)
    most = (rows["mean_ns"] - SHORTEST_NS).clip(lower=0)
    return (sooner.clip(upper=most) / rows["mean_ns"]).fillna(0.0)


def _roofs(rows: pd.DataFrame) -> pd.DataFrame:
    """Ns that each launch takes at least by each roof; by its bound and efficiency where no more is known."""
    known = rows.reindex(columns=list(ROOFS)).astype("float64")
    lacking = known.isna().all(axis=1)
    for roof in ROOFS:
        mine = lacking & rows["bound"].eq(roof.removeprefix(ROOF).removesuffix("_ns"))
        known.loc[mine, roof] = rows["efficiency"].astype("float64")[mine] * rows["mean_ns"][mine]
    return known.fillna(0.0)
