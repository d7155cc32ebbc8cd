"""Predict which part of each launch's time tf32 or bf16 would save, by measured roofs.

Matrix products then run in other kernels, on tensor cores; everything else runs in the same kernels on fewer bytes.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

# Classes of kernels that tensor cores compute; classes that autocast leaves in fp32 or does not reach.
PRODUCTS = ("gemm", "convolution", "recurrent", "attention")
UNTOUCHED = ("optimizer", "communication")
PASSES = ("forward", "backward")
# Kernels that accompany matrix products: transforms (FFT, Winograd), and sums of partial results.
PIECES = r"fft2d_|winograd\w*(?:Data|Delta|Output|Filter)|splitKreduce|reduce_wgrad|init_device_workspace"
# Products of complex numbers belong to FFTs; no other kernel reads their bytes.
COMPLEX = "cf32cf32"
# In fp32, cuDNN normalises a batch in one kernel. In bf16, PyTorch does it in three kernels, and no faster.
BATCH_NORM, FORWARD_NORM, NORM_MORE = "bn_(?:fw|bw)_", "bn_fw_", 2.0
# Least time of any launch in ns: the shortest tenth of the zoo's elementwise kernels on an H200.
SHORTEST_NS = 2_000.0
# All below is fitted to kernels and launches of training steps of bert, deeplab, inceptionv3, mobilenetv2, resnetv2_50,
# unet and vgg19 on an H200, by nsys (docs/how/replay.md). A kernel that autocast or another layout adds:
ADDED_NS = 3_000.0
# Time of a tensor-core kernel besides its operations, and the share of the peak rate that these reach.
BEGINNING_NS = {"tf32": 15_000.0, "bf16": 8_000.0}
REACHED_OPERATIONS = 0.8
# Time that the change of layout to channels last and back adds to a convolution.
LAYOUT = {"tf32": 0.25, "bf16": 0.5}
# An operator casts its weights, and in training their gradients; in inference it takes the CPU as much longer, by
# trials of deeplab, inceptionv3 and srcnn. Of a captured step that is two for three products.
CASTS, CASTS_CAPTURED = 2.0, 2 / 3
# Without counters: what its nearest roof takes of a launch's time beyond the shortest; and which classes but products
# have a roof at all, that of memory. Of bert, mobilenetv2 and unet with every launch counted on an H100, DRAM or L2
# takes 0.82 of it in these classes, and instructions of any kind, at the rate of multiply-adds, 0.71 in products.
UNCOUNTED = 0.7
COPY_CLASSES = ("elementwise", "copy", "softmax", "pooling")
# Without measured peaks: rates of the data sheets of A100 and H100, relative to fp32 (8.0 and 7.4; 16.0 and 14.8).
RATES = {"fp32": 1.0, "tf32": 8.0, "bf16": 16.0}
# Columns with the ns that a launch takes at least by each roof; of the table of the roofline without the first word.
ROOF = "roof_"
ROOFS = tuple(f"{ROOF}{name}_ns" for name in ("dram", "l2", "simt", "tensor"))
TARGET_PRECISIONS = ("tf32", "bf16")


def saved_share(rows: pd.DataFrame, peaks: Mapping[str, float], to: str, now: str, nchw: bool = True) -> pd.Series:
    """Return the share of each row's time that reduced precision saves.

    The new time of a matrix product follows from its operations and bytes, at the rates that tensor-core kernels reach.
    Any other launch gets shorter in proportion to its nearest roof; its distance from that roof stays.

    Args:
        rows: one row per launch, with `class`, `mean_ns`, `bound`, `efficiency` and, if known, `kernel`, `range` and
            ROOFS. For launches without counters, UNCOUNTED is used.
        peaks: measured rates by name, in flop/s; unknown ones follow from RATES.
        to: precision to predict, a key of TO.
        now: precision of the cell.
        nchw: whether its tensors have channels first.

    A product takes 1 ms, of which fp32 at its peak needs 0.6; tensor cores are ten times as fast:

    >>> rows = pd.DataFrame({"class": ["gemm"], "mean_ns": 1e6, "bound": "simt", "efficiency": 0.6})
    >>> saved_share(rows, {"fp32": 50, "tf32": 500}, "tf32", "fp32").round(2).tolist()
    [0.91]
    """
    before, rates = _roofs(rows, now), peaks if {"fp32", to, *({now} & {*TARGET_PRECISIONS})} <= set(peaks) else RATES
    products = rows["class"].isin(PRODUCTS) & _in_passes(rows)
    after = before.copy()
    after.loc[products, "roof_simt_ns"] *= min(rates["fp32"] / rates[to], 1.0)
    if to == "bf16":
        others = ~rows["class"].isin((*PRODUCTS, *UNTOUCHED)) & _in_passes(rows) & ~_name_matches(rows, BATCH_NORM)
        narrower = products | others
        after.loc[narrower, ["roof_dram_ns", "roof_l2_ns"]] /= 2
        if now == "tf32":
            after.loc[products, "roof_tensor_ns"] *= min(rates["tf32"] / rates["bf16"], 1.0)
    sooner = (before.max(axis=1) - after.max(axis=1)).clip(lower=0)
    operations = ["roof_simt_ns", "roof_tensor_ns"]
    faster = products & (before[operations].max(axis=1) > after[operations].max(axis=1))
    moved = after["roof_dram_ns"].mask(_name_matches(rows, COMPLEX), 0.0)
    takes = BEGINNING_NS[to] + np.maximum(after[operations].max(axis=1) / REACHED_OPERATIONS, moved)
    takes = takes.mask(_relayout_counts(rows, now, nchw), takes * (1 + LAYOUT[to]))
    sooner = sooner.where(~faster, (rows["mean_ns"] - takes).clip(lower=0)).fillna(0.0)
    most = (rows["mean_ns"] - SHORTEST_NS).clip(lower=0)
    gone = products & _name_matches(rows, PIECES) & (now == "fp32")
    return (sooner.clip(upper=most) / rows["mean_ns"]).fillna(0.0).mask(gone, 1.0)


def added_launches(rows: pd.DataFrame, to: str, now: str, nchw: bool = True) -> tuple[pd.Series, pd.Series]:
    """Return the numbers of launches that are added per launch: by operators of their own, and within its operator.

    >>> rows = pd.DataFrame({"class": ["gemm", "convolution", "gemm"], "range": ["forward", "forward", "backward"]})
    >>> [more.tolist() for more in added_launches(rows, "bf16", "fp32")]
    [[2.0, 2.0, 0.0], [0.0, 1.0, 0.0]]
    """
    operators, within = pd.Series(0.0, rows.index), pd.Series(0.0, rows.index)
    weighted = rows["class"].isin(PRODUCTS) & rows["class"].ne("attention") & ~_name_matches(rows, PIECES)
    if to == "bf16" and now != to:
        parts = rows["range"] if "range" in rows else pd.Series("graph", rows.index)
        operators = operators.mask(weighted & parts.eq("forward"), CASTS)
        operators = operators.mask(weighted & parts.eq("graph"), CASTS_CAPTURED)
        within = within.mask(_name_matches(rows, FORWARD_NORM), NORM_MORE)
    return operators, within.mask(weighted & _relayout_counts(rows, now, nchw), 1.0)


def _in_passes(rows: pd.DataFrame) -> pd.Series:
    """Return whether each row belongs to the forward or backward pass, or to a graph of both; true if unknown."""
    return rows["range"].isin((*PASSES, "graph")) if "range" in rows else pd.Series(True, rows.index)


def _relayout_counts(rows: pd.DataFrame, now: str, nchw: bool) -> pd.Series:
    """Return 1 for rows whose operands need another layout for tensor cores and do not have it yet, else 0."""
    return rows["class"].eq("convolution") & nchw & (now == "fp32")


def _name_matches(rows: pd.DataFrame, pattern: str) -> pd.Series:
    """Return whether the name of each row's kernel matches a regular expression; false if names are unknown."""
    names = next((rows[name] for name in ("kernel", "function") if name in rows), pd.Series("", rows.index))
    return names.fillna("").str.contains(pattern)


def _roofs(rows: pd.DataFrame, now: str) -> pd.DataFrame:
    """Return the least ns of each launch by each roof, one column per roof.

    If only bound and efficiency are known, they follow from these; without counters, from the class of the kernel.
    """
    known = rows.reindex(columns=list(ROOFS)).astype("float64")
    lacking = known.isna().all(axis=1)
    uncounted = lacking & rows["efficiency"].isna()
    bound = rows["bound"].mask(uncounted, "").mask(uncounted & rows["class"].isin(COPY_CLASSES), "dram")
    bound = bound.mask(uncounted & rows["class"].isin(PRODUCTS), "simt" if now == "fp32" else "tensor")
    beyond = UNCOUNTED * (rows["mean_ns"] - SHORTEST_NS).clip(lower=0)
    takes = (rows["efficiency"].astype("float64") * rows["mean_ns"]).mask(uncounted, beyond)
    for roof in ROOFS:
        mine = lacking & bound.eq(roof.removeprefix(ROOF).removesuffix("_ns"))
        known.loc[mine, roof] = takes[mine]
    return known.fillna(0.0)
