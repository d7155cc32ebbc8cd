"""Selects the samples of the window in base units, and computes a cell's power and energy from them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import COUNT, CPU, NUMBER, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.sample.command import ERROR
from profzoo.tools.sample.nvml import MEAN, REASONS

if TYPE_CHECKING:
    from profzoo.cell.job_types import ProcessFacts, Sidecar

# Fewest samples of a GPU, and fewest moves of its energy counter, from which values are computed.
LEAST = 10
# A mean over the last second belongs to the window after the window's first second.
SECOND_NS = 1_000_000_000
# Columns in base units: the sampler's, and what one of its units is.
UNITS = {
    "power_w": ("power_mw", 1e-3),
    "sm_clock_hz": ("sm_clock_mhz", 1e6),
    "memory_clock_hz": ("memory_clock_mhz", 1e6),
    "temperature_c": ("temperature_c", 1),
    "gpu_utilisation_pct": ("gpu_utilisation_pct", 1),
    "memory_utilisation_pct": ("memory_utilisation_pct", 1),
    "memory_used_bytes": ("memory_used_bytes", 1),
    # As NVML has them, a bit each.
    "throttle_reasons": ("throttle_reasons", 1),
}
# Values that a GPU does not report are empty.
TABLE = Table(
    columns={
        "process": Column(COUNT, "Number of the process, counted from 0."),
        "t_ns": Column(COUNT, "Time of the sample since the window began.", "ns", "sample", CPU),
        "gpu_uuid": Column(TEXT, "UUID of the GPU.", tool="sample"),
        "power_w": Column(NUMBER.or_missing, "Power draw of the GPU.", "W", "sample"),
        "sm_clock_hz": Column(NUMBER.or_missing, "Clock of the SMs.", "Hz", "sample"),
        "memory_clock_hz": Column(NUMBER.or_missing, "Clock of the GPU's memory.", "Hz", "sample"),
        "temperature_c": Column(NUMBER.or_missing, "Temperature of the GPU.", "°C", "sample"),
        "gpu_utilisation_pct": Column(
            NUMBER.or_missing, "Part of NVML's last sampling period in which a kernel ran.", "%", "sample"),
        "memory_utilisation_pct": Column(
            NUMBER.or_missing, "Part of NVML's last sampling period in which memory was read or written.",
            "%", "sample"),
        "memory_used_bytes": Column(NUMBER.or_missing, "GPU memory in use.", "byte", "sample"),
        "throttle_reasons": Column(
            NUMBER.or_missing, "Why the clock is lower than it could be, as a sum of NVML's bits.", tool="sample"),
        "energy_j": Column(
            NUMBER.or_missing, "Energy by the GPU's counter since the window's first sample.", "J", "sample"),
    },
    key=["process", "t_ns", "gpu_uuid"],
)  # fmt: skip
COLUMNS = [*TABLE.columns]
# A clock whose middle nine tenths of samples are farther apart than this has moved; a reason is named from this share
# of the samples on.
MOVED, NAMED = 0.02, 0.01
# A clock that only the fastest samples exceed.
HIGH = 0.95
# The sampler's own.
SAMPLES = Table(
    columns={
        "time_ns": Column(COUNT, "Time of the sample on the host's monotonic clock.", "ns", "sample", CPU),
        **select(TABLE.columns, "gpu_uuid"),
        "power_is": Column(TEXT, "What NVML's power is: `instant`, or the mean of the last second.", tool="sample"),
        "power_limit_mw": Column(COUNT.or_missing, "Power limit of the GPU.", "mW", "sample"),
        "power_mw": Column(COUNT.or_missing, "Power draw of the GPU.", "mW", "sample"),
        "sm_clock_mhz": Column(COUNT.or_missing, "Clock of the SMs.", "MHz", "sample"),
        "memory_clock_mhz": Column(COUNT.or_missing, "Clock of the GPU's memory.", "MHz", "sample"),
        **select(
            TABLE.columns, "temperature_c", "gpu_utilisation_pct", "memory_utilisation_pct", "memory_used_bytes",
            "throttle_reasons", kind=COUNT.or_missing),
        "energy_mj": Column(COUNT.or_missing, "Energy by the GPU's counter.", "mJ", "sample"),
    },
    key=["time_ns", "gpu_uuid"],
)  # fmt: skip


def process_windows(facts: "Sidecar") -> "Sequence[ProcessFacts]":
    """Return the description of each window in a sidecar: one per process."""
    return facts.get("processes") or [facts]


def select_window(raw: pd.DataFrame, began_ns: int, wall_ns: int, process: int = 0) -> pd.DataFrame:
    """Return the samples of a process's window; values that NVML does not report are empty.

    `t_ns` counts from the window's beginning. `energy_j` counts from the GPU's first sample in the window.

    Args:
        raw: the sampler's table. began_ns, wall_ns: begin and length of the window in ns. process: number to add.
    """
    rows = raw[raw["time_ns"].between(began_ns, began_ns + wall_ns)]
    table = pd.DataFrame({"process": process, "t_ns": rows["time_ns"] - began_ns, "gpu_uuid": rows["gpu_uuid"]})
    for name, (own, unit) in UNITS.items():
        table[name] = pd.to_numeric(rows[own]) * unit
    energy = pd.to_numeric(rows["energy_mj"])
    table["energy_j"] = (energy - energy.groupby(rows["gpu_uuid"]).transform("first")) / 1e3
    return table[COLUMNS].reset_index(drop=True)


def find_gaps(table: pd.DataFrame, of_windows: "Sequence[ProcessFacts]", ran_on: Sequence[str]) -> list[str]:
    """Explain why the samples do not describe the cell, one line each; empty if they do. ran_on: UUIDs of its GPUs."""
    counts = table.groupby(["process", "gpu_uuid"]).size().unstack("process").reindex(columns=range(len(of_windows)))
    found, wall_ns = [], min(window["window_wall_ns"] for window in of_windows)
    if (fewest := int(counts.fillna(0).min().min()) if len(counts) else 0) < LEAST:
        found.append(
            f"the window of {wall_ns / 1e6:.0f} ms holds {fewest} sample(s), but at least {LEAST} are needed: "
            "raise sample.window, or lower sample.interval_ms"
        )
    elif len(set(ran_on)) > len(counts):
        found.append(f"only {len(counts)} of {len(set(ran_on))} GPUs were sampled: the GPUs of the first node")
    return found


def mean_interval_ms(table: pd.DataFrame) -> float | None:
    """Return the mean time between two samples of a GPU, in ms."""
    apart = table.groupby(["process", "gpu_uuid"])["t_ns"].diff().dropna()
    return round(float(apart.mean()) / 1e6, 3) if len(apart) else None


def summarise_cell(table: pd.DataFrame, facts: "Sidecar") -> dict[str, float | str]:
    """Return means over processes of `summarise_processes`, and `clocks`: why they were not steady, if so."""
    frame = pd.DataFrame(summarise_processes(table, facts))
    found: dict[str, float | str] = {name: float(frame[name].mean()) for name in frame}
    return found | ({"clocks": said} if (said := describe_clocks(table)) else {})


def summarise_processes(table: pd.DataFrame, facts: "Sidecar") -> list[dict[str, float]]:
    """Return for each process over its window: power and energy of all GPUs, clock rate, temperature, throttling.

    Values that the GPUs do not report are left out. Energy is given per step and per item (a data sample), in two ways:
    from the counter, between its first and last move, and from the integral of power. Both are scaled to the whole
    window; the names of the columns say which is which. `energy_error` is one move of the counter over all its moves.
    """
    return [
        _of_window(table[table["process"] == process], window, facts["power_is"] == MEAN)
        for process, window in enumerate(process_windows(facts))
    ]


def _of_window(table: pd.DataFrame, window: "ProcessFacts", averaged: bool) -> dict[str, float]:
    of_gpus = [rows for _, rows in table.groupby("gpu_uuid")]
    power = sum(mean_power_w(rows, averaged) for rows in of_gpus)
    counted = sum(energy_counter_power_w(rows) for rows in of_gpus)
    wall_s, items = window["window_wall_ns"] / 1e9, window["items"] or np.nan
    found = {
        "power_w": power,
        "step_energy_power_j": power * wall_s / window["steps"],
        "step_energy_counter_j": counted * wall_s / window["steps"],
        "item_energy_power_j": power * wall_s / items,
        "item_energy_counter_j": counted * wall_s / items,
        "energy_error": max((energy_resolution(rows) for rows in of_gpus), default=np.nan) if counted > 0 else np.nan,
        "sm_clock_hz": table["sm_clock_hz"].mean(),
        "sm_clock_high_hz": table["sm_clock_hz"].quantile(HIGH),
        "temperature_max_c": table["temperature_c"].max(),
        "throttled_share": _slowed(table).mean(),
    }
    return {name: float(value) for name, value in found.items() if not np.isnan(value)}


def _slowed(table: pd.DataFrame, bits: int = sum(REASONS)) -> pd.Series:
    """Return whether each sample has any of these throttle reasons; samples without reasons are left out."""
    return (table["throttle_reasons"].dropna().astype("int64") & bits) > 0


def describe_clocks(table: pd.DataFrame) -> str:
    """Describe how far the clock moved within a window and what limited it; empty if it was steady.

    >>> samples = {"process": 0, "gpu_uuid": "a", "sm_clock_hz": [2e9, 1.5e9], "throttle_reasons": [0, 4]}
    >>> describe_clocks(pd.DataFrame(samples))
    'SM clock from 1,525 to 1,975 MHz; power cap in 50% of samples'
    """
    quantiles = table.groupby(["process", "gpu_uuid"])["sm_clock_hz"].quantile([0.05, 0.95]).unstack()
    low, high = (quantiles[quantile] / 1e6 for quantile in (0.05, 0.95)) if len(quantiles) else ([], [])
    said = []
    if len(low) and (1 - low / high).max() > MOVED:
        worst = (1 - low / high).idxmax()
        said.append(f"SM clock from {low[worst]:,.0f} to {high[worst]:,.0f} MHz")
    shares = {name: _slowed(table, bit).mean() for bit, name in REASONS.items()}
    return "; ".join(
        [*said, *(f"{name} in {share:.0%} of samples" for name, share in shares.items() if share >= NAMED)]
    )


def mean_power_w(rows: pd.DataFrame, averaged: bool) -> float:
    """Return the mean power of a GPU in W, by the trapezoidal rule; NaN with fewer than LEAST samples.

    averaged: each sample is a mean over the last second.

    >>> mean_power_w(pd.DataFrame({"t_ns": range(10), "power_w": [100.0] * 5 + [200.0] * 5}), averaged=False)
    150.0
    """
    told = rows[rows["power_w"].notna() & (rows["t_ns"] >= SECOND_NS * averaged)]
    if len(told) < LEAST:
        return float("nan")
    at = told["t_ns"].to_numpy(dtype=float)
    return float(np.trapezoid(told["power_w"], at) / (at[-1] - at[0]))


def energy_counter_power_w(rows: pd.DataFrame) -> float:
    """Return the mean power of a GPU in W between the energy counter's first and last move; NaN below LEAST moves.

    The interval begins and ends with moves, because the counter stands still for longer than the sampling interval.

    >>> moving = [joule // 2 * 2 for joule in range(22)]
    >>> energy_counter_power_w(pd.DataFrame({"t_ns": [n * 10**7 for n in range(22)], "energy_j": moving}))
    100.0
    """
    moves = rows[rows["energy_j"].diff() > 0]
    if len(moves) < LEAST:
        return float("nan")
    first, last = moves.iloc[0], moves.iloc[-1]
    return float((last["energy_j"] - first["energy_j"]) / (last["t_ns"] - first["t_ns"]) * 1e9)


def energy_resolution(rows: pd.DataFrame) -> float:
    """Return one move of a GPU's energy counter over the energy between its first and last move; NaN without moves.

    >>> energy_resolution(pd.DataFrame({"energy_j": [0, 0, 5, 5, 10, 10, 15]}))
    0.5
    """
    moves = int((rows["energy_j"].diff() > 0).sum())
    return 1 / (moves - 1) if moves > 1 else float("nan")


def describe_coarse_energy(table: pd.DataFrame) -> list[str]:
    """Return a note if the energy counter's error is too large; empty if it is small enough or unknown."""
    errors = [energy_resolution(rows) for _, rows in table.groupby(["process", "gpu_uuid"])]
    worst = max((error for error in errors if not np.isnan(error)), default=0.0)
    return (
        [f"the energy counter is exact to {worst:.1%}, not to {ERROR:.0%}: it moved too seldom"]
        if worst > ERROR
        else []
    )


# Exports the samples of a cell's window to one tidy CSV.

NEEDS: fact.Needs = {
    "window_began_ns?": fact.COUNT,
    "window_wall_ns": fact.COUNT,
    "device_uuid?": fact.or_null(fact.TEXT),
    "device_type?": fact.TEXT,
    "ranks?": fact.PROCESSES,
    "processes?": fact.PROCESSES,
    "warnings": fact.LIST,
}


def main(samples: str, samples_sidecar: str, csv: str, sidecar: str, say: Callable[[str], object] = print) -> None:
    """Read the sampler's file and its sidecar, write the CSV and its sidecar.

    The new sidecar is a copy of the sampler's with further keys: `samples`, their number on the GPU with the fewest;
    `interval_reached_ms`; the kind of power values; the GPUs' power limits; and `gaps`, why samples do not describe the
    cell.

    Raises:
        DataError: the sidecar does not say when the window began.
    """
    facts, raw = read_facts(samples_sidecar, NEEDS), reading.read(samples, SAMPLES)
    windows = process_windows(facts)
    if not all("window_began_ns" in window for window in windows):
        raise DataError(f"{samples} does not say which samples are in the window: collect it again")
    parts = [
        select_window(raw, window["window_began_ns"], window["window_wall_ns"], process)
        for process, window in enumerate(windows)
    ]
    table = pd.concat(parts, ignore_index=True)
    ran_on = [uuid for one in facts.get("ranks", [facts]) if (uuid := one.get("device_uuid"))]
    gaps = [why_unsampled(facts)] if raw.empty else find_gaps(table, windows, ran_on)
    told = [*gaps, *([] if gaps else describe_coarse_energy(table))]
    for line in told:
        say(f"{csv}: {line}")
    limits = raw.groupby("gpu_uuid")["power_limit_mw"].first() / 1e3
    more = {
        "samples": int(table.groupby("gpu_uuid").size().min()) if len(table) else 0,
        "interval_reached_ms": mean_interval_ms(table),
        "power_is": raw["power_is"].iloc[0] if len(raw) else "nothing",
        "power_limits_w": {uuid: limit for uuid, limit in limits.items() if pd.notna(limit)},
        "gaps": gaps,
        "warnings": [*facts["warnings"], *told],
    }
    write_csv(table, csv)
    write_json({**facts, **more}, sidecar)


def why_unsampled(facts: "Sidecar") -> str:
    """Explain why there are no samples."""
    if facts.get("device_type") == "cpu":
        return "the cell ran on the CPU, of whose power and energy NVML knows nothing"
    return "NVML (libnvidia-ml.so.1) could not be loaded, so that nothing was sampled: see the log of the sampling job"
