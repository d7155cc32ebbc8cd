"""Compares counted work with measured peaks: what bounds a launch, class of kernels or cell, and how closely.

A kernel takes at least as long as its DRAM traffic at the peak of DRAM, its L2 traffic at the peak of L2, and its
operations at the peak of their arithmetic. SIMT units and tensor cores are separate, because they may run side by side.
The longest of these times is the kernel's bound. This time over the measured time is its efficiency. Operations and
bytes are ncu's counts for the mean launch; times are nsys's, because ncu lengthens them. If counts are estimated,
`_low` and `_high` are the ends of 90 % confidence intervals. Those of rates use the delta method (Cochran, Sampling
Techniques, 1977, 6.3) and treat the errors of numerator and denominator as independent.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, GPU, NINE_OF_TEN, NUMBER, TEXT, Column, interval_ends
from profzoo.io.common_columns import shared
from profzoo.kernels import counters
from profzoo.kernels.counters import FREEDOM, HIGH, LOW
from profzoo.tools.ncu.estimates import interval_half_width

# The measured peak for each counted arithmetic. The benchmark has no peak for half precision on SIMT units, because its
# matrix products use tensor cores. The peak of fp32, which half precision at least reaches, gives an upper bound of
# time.
SIMT = {"fp64_flop": "fp64", "fp32_flop": "fp32", "fp16_flop": "fp32"}
TENSOR = {
    "tensor_bf16_flop": "bf16",
    "tensor_fp16_flop": "fp16",
    "tensor_tf32_flop": "tf32",
    "tensor_fp8_flop": "fp8",
    "tensor_int8_flop": "int8",
    "tensor_fp64_flop": "fp64",
}
MEMORY = {"dram_bytes": "dram", "l2_bytes": "l2"}
BOUNDS = ("dram", "l2", "simt", "tensor")
COUNTED = [*MEMORY, *SIMT, *TENSOR]
SUMMED = ["dram_bytes", "l2_bytes", "simt_flop", "tensor_flop"]
RATES = ["intensity", "flop_per_s", "dram_bytes_per_s"]
ESTIMATED = [*SUMMED, *RATES, "efficiency"]
_COUNTED: Mapping[str, Column] = {
    "ns": Column(NUMBER.or_missing, "GPU time: of a launch at level `launch`, else per step.", "ns", "nsys", GPU),
    "dram_bytes": Column(
        NUMBER.or_missing, "Bytes read from and written to DRAM.", "byte", "ncu", interval=NINE_OF_TEN),
    "l2_bytes": Column(NUMBER.or_missing, "Bytes through the L2 cache.", "byte", "ncu", interval=NINE_OF_TEN),
    "simt_flop": Column(
        NUMBER.or_missing, "Operations of SIMT units, of all precisions.", "flop", "ncu", interval=NINE_OF_TEN),
    "tensor_flop": Column(
        NUMBER.or_missing, "Operations of tensor cores, of all types.", "flop", "ncu", interval=NINE_OF_TEN),
    "intensity": Column(
        NUMBER.or_missing, "Arithmetic intensity: operations per byte of DRAM traffic.",
        "flop/byte", "ncu", interval=NINE_OF_TEN),
    "flop_per_s": Column(
        NUMBER.or_missing, "Operations per second of GPU time.", "flop/s", clock=GPU, interval=NINE_OF_TEN),
    "dram_bytes_per_s": Column(
        NUMBER.or_missing, "DRAM traffic per second of GPU time.", "byte/s", clock=GPU, interval=NINE_OF_TEN),
    "dram_ns": Column(
        NUMBER.or_missing, "Least time that the DRAM traffic takes at the measured peak.", "ns", clock=GPU),
    "l2_ns": Column(NUMBER.or_missing, "Least time that the L2 traffic takes at the measured peak.", "ns", clock=GPU),
    "simt_ns": Column(
        NUMBER.or_missing, "Least time that the SIMT operations take at the measured peak.", "ns", clock=GPU),
    "tensor_ns": Column(
        NUMBER.or_missing, "Least time that the tensor-core operations take at the measured peak.", "ns", clock=GPU),
    **shared("bound"),
    "efficiency": Column(
        NUMBER.or_missing, "Least time under the bound, over the GPU time. By work counted by ncu and measured peaks.",
        "fraction", clock=GPU, interval=NINE_OF_TEN),
}  # fmt: skip
COLUMNS: Mapping[str, Column] = {**_COUNTED, **interval_ends(_COUNTED, *ESTIMATED)}
LEAST = [f"{bound}_ns" for bound in BOUNDS]


def _positive(peaks: pd.DataFrame) -> str | None:
    wrong = peaks.loc[~(peaks["rate"] > 0), "peak"]
    return f"the rate of {wrong.iloc[0]} is not above 0" if len(wrong) else None


# As calibration/peaks.py writes them.
PEAKS = reading.Table(
    columns={
        "peak": Column(TEXT, "What was measured: `dram`, `l2`, or matrix products of a precision."),
        "rate": Column(AMOUNT, "Measured peak rate; see `unit`.", "see unit"),
        "unit": Column(TEXT, "Unit of `rate`: `byte/s` or `flop/s`."),
        "how": Column(TEXT, "How the peak was measured."),
    },
    key=["peak"],
    holds=_positive,
)


def read_peaks(path: str | Path) -> dict[str, float]:
    """Return rates by name, byte/s and flop/s, from a file of measured peaks."""
    return reading.read(path, PEAKS).set_index("peak")["rate"].to_dict()


def bound_launches(kernels: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COLUMNS for the mean launch of each row of a kernel table; empty if counts or times are missing.

    `intensity` is in flop per byte of DRAM traffic.

    kernels: rows of a kernel table. peaks: measured rates by name, in byte/s and flop/s.
    """
    table, counted = _held(kernels["mean_ns"], kernels, peaks), _counted(kernels)
    unsure = _unsure(kernels, peaks)
    unsure["efficiency"] = unsure.pop("bounded") / kernels["mean_ns"]
    told = _told(table, unsure, kernels.reindex(columns=[FREEDOM])[FREEDOM])
    held = ["efficiency", f"efficiency{LOW}", f"efficiency{HIGH}"]
    return told.assign(bound=told["bound"].where(counted, ""), **{name: told[name].where(counted) for name in held})


def bound_groups(kernels: pd.DataFrame, by: list[str], peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COLUMNS for each group of rows, per step, with the share of its time that they cover.

    Only rows with time and counts are included; `counted_share` is their share of the group's GPU time. The bound of a
    group is the sum of the bounds of its launches.
    """
    known = kernels[_counted(kernels) & kernels["total_ns"].notna()]
    rows = _held(known["mean_ns"], known, peaks)
    times = known["launches"].to_numpy()
    sums = rows[["ns", *SUMMED, *LEAST]].mul(times, axis=0)
    bounded = rows[LEAST].max(axis=1) * times
    parts = pd.concat([known[by], sums.assign(_bounded=bounded)], axis=1)
    grouped = parts.groupby(by, sort=False, dropna=False).sum(min_count=1)
    whole = kernels.groupby(by, sort=False, dropna=False)["total_ns"].sum()
    table = grouped.reindex(whole.index)
    table["counted_share"] = (table["ns"] / whole.where(whole > 0)).fillna(0.0)
    table = _rates(table)
    table["efficiency"] = table.pop("_bounded") / table["ns"]
    # Rows are estimated each by itself.
    variances = _unsure(known, peaks).mul(times, axis=0).pow(2)
    keys = [known[name] for name in by]
    unsure = variances.groupby(keys, sort=False, dropna=False).sum(min_count=1).pow(0.5).reindex(table.index)
    unsure["efficiency"] = unsure.pop("bounded") / table["ns"]
    freedom = counters.freedom_of_sums(variances, known.reindex(columns=[FREEDOM])[FREEDOM], keys).reindex(table.index)
    return _told(table, unsure, freedom).reset_index()[[*by, "counted_share", *COLUMNS]]


def sums(kernels: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return SUMMED per step for each group of a kernel table's rows, with the ends of their intervals.

    Each sum is over the rows in which the quantity was counted; it is empty if there are none.
    """
    times, keys = kernels["launches"].to_numpy(), [kernels[name] for name in by]
    values = _held(kernels["mean_ns"], kernels, {})[SUMMED].mul(times, axis=0)
    variances = _unsure(kernels, {})[SUMMED].mul(times, axis=0).pow(2)
    grouped = values.groupby(keys, sort=False, dropna=False).sum(min_count=1)
    errors = variances.groupby(keys, sort=False, dropna=False).sum(min_count=1).pow(0.5)
    freedom = counters.freedom_of_sums(variances, kernels.reindex(columns=[FREEDOM])[FREEDOM], keys)
    return grouped.assign(**_ends(grouped, {name: errors[name] for name in SUMMED}, freedom)).reset_index()


def _unsure(kernels: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return standard errors of SUMMED per launch of each row, and `bounded`, that of the bound's time."""
    errors = {name: counters.standard_errors(kernels, name) for name in COUNTED}
    found = {name: errors[name] for name in MEMORY}
    for units, arithmetic in (("simt", SIMT), ("tensor", TENSOR)):
        # Operations of one launch may all be off to one side.
        found[f"{units}_flop"] = pd.DataFrame({name: errors[name] for name in arithmetic}).sum(axis=1, min_count=1)
    table = pd.DataFrame(found)
    upper = kernels.assign(**{name: kernels[name] + errors[name].fillna(0.0) for name in COUNTED if name in kernels})
    most, least = (_held(kernels["mean_ns"], one, peaks)[LEAST].max(axis=1) for one in (upper, kernels))
    known = table.notna().any(axis=1)
    return table.assign(bounded=(most - least).where(known))


def _told(table: pd.DataFrame, errors: pd.DataFrame, freedom: pd.Series) -> pd.DataFrame:
    """Return the table with interval ends, from standard errors of SUMMED and of efficiency."""
    relative = {name: errors[name] / table[name].where(table[name] > 0) for name in SUMMED}
    flop = table[["simt_flop", "tensor_flop"]].sum(axis=1, min_count=1)
    of_flop = errors[["simt_flop", "tensor_flop"]].sum(axis=1, min_count=1) / flop.where(flop > 0)
    relative |= {
        "intensity": np.hypot(of_flop, relative["dram_bytes"]),
        "flop_per_s": of_flop,
        "dram_bytes_per_s": relative["dram_bytes"],
    }
    absolute = {name: relative[name] * table[name] for name in relative} | {"efficiency": errors["efficiency"]}
    ends = _ends(table, absolute, freedom)
    return table.assign(**ends)[[*(name for name in table if name not in ends), *ends]]


def _ends(table: pd.DataFrame, errors: Mapping[str, pd.Series], freedom: pd.Series) -> dict[str, pd.Series]:
    """Return both interval ends of these columns, from standard errors and degrees of freedom."""
    ends = {}
    for name, error in errors.items():
        wide = interval_half_width(error.to_numpy(dtype=float), freedom.to_numpy(dtype=float))
        ends[f"{name}{LOW}"], ends[f"{name}{HIGH}"] = (table[name] - wide).clip(lower=0), table[name] + wide
    return ends


def _counted(kernels: pd.DataFrame) -> pd.Series:
    """Return rows with time, DRAM traffic, and both kinds of operations; without one, a bound may be missed."""
    counted = kernels["mean_ns"].notna() & kernels["dram_bytes"].notna()
    for operations in (SIMT, TENSOR):
        counted &= kernels.reindex(columns=list(operations)).notna().any(axis=1)
    return counted


def _held(ns: pd.Series, work: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    work = work.reindex(columns=COUNTED).astype("float64")
    table = pd.DataFrame({"ns": ns.astype("float64")})
    table[list(MEMORY)] = work[list(MEMORY)]
    for units, arithmetic in (("simt", SIMT), ("tensor", TENSOR)):
        columns = list(arithmetic)
        table[f"{units}_flop"] = work[columns].sum(axis=1, min_count=1)
        least = sum((work[name].fillna(0) / peaks[peak] for name, peak in arithmetic.items() if peak in peaks), 0 * ns)
        table[f"{units}_ns"] = (least * 1e9).where(table[f"{units}_flop"].notna())
    for name, peak in MEMORY.items():
        table[f"{peak}_ns"] = work[name] / peaks[peak] * 1e9 if peak in peaks else float("nan")
    table = _rates(table)
    table["efficiency"] = table[LEAST].max(axis=1) / table["ns"]
    return table[["ns", *SUMMED, *RATES, *LEAST, "bound", "efficiency"]]


def _rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with intensity, rates and the bound."""
    flop = table[["simt_flop", "tensor_flop"]].sum(axis=1, min_count=1)
    table["intensity"] = flop / table["dram_bytes"].where(table["dram_bytes"] > 0)
    table["flop_per_s"] = flop / table["ns"] * 1e9
    table["dram_bytes_per_s"] = table["dram_bytes"] / table["ns"] * 1e9
    least = table[LEAST]
    known = least.notna().any(axis=1)
    table["bound"] = least[known].idxmax(axis=1).str.removesuffix("_ns").reindex(table.index).fillna("")
    return table
