"""Samples of the window in base units, and what they say of a cell's power and energy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from profzoo.reading import kinds
from profzoo.reading.tables import Table
from profzoo.tools.sample.nvml import MEAN

# Samples of a GPU that it takes to say anything, and moves of its counter of energy to go by that.
LEAST = 10
# A mean of the last second is of the window once that second is over.
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
}
COLUMNS = ["t_ns", "gpu_uuid", *UNITS, "energy_j"]
# What a GPU does not tell is empty.
TABLE = Table(
    columns=dict.fromkeys(COLUMNS, kinds.maybe(kinds.NUMBER)) | {"t_ns": kinds.COUNT, "gpu_uuid": kinds.TEXT},
    key=["t_ns", "gpu_uuid"],
)
# The sampler's own.
SAMPLES = Table(
    columns={
        "time_ns": kinds.COUNT,
        **dict.fromkeys(["gpu_uuid", "power_is"], kinds.TEXT),
        **dict.fromkeys(["power_limit_mw", *(own for own, _ in UNITS.values()), "energy_mj"], kinds.maybe(kinds.COUNT)),
    },
    key=["time_ns", "gpu_uuid"],
)


def within(raw: pd.DataFrame, began_ns: int, wall_ns: int) -> pd.DataFrame:
    """The samples of a window, which began at a time and took so long; empty where NVML tells nothing.

    `t_ns` is from its beginning. `energy_j` is by the GPU's counter, from its first sample here.
    """
    rows = raw[raw["time_ns"].between(began_ns, began_ns + wall_ns)]
    table = pd.DataFrame({"t_ns": rows["time_ns"] - began_ns, "gpu_uuid": rows["gpu_uuid"]})
    for name, (own, unit) in UNITS.items():
        table[name] = pd.to_numeric(rows[own]) * unit
    energy = pd.to_numeric(rows["energy_mj"])
    table["energy_j"] = (energy - energy.groupby(rows["gpu_uuid"]).transform("first")) / 1e3
    return table[COLUMNS].reset_index(drop=True)


def gaps(table: pd.DataFrame, wall_ns: int, ran_on: Sequence[str]) -> list[str]:
    """Why the samples say nothing of the cell, a line each; none where they do. ran_on: UUIDs of GPUs that it took."""
    counts = table.groupby("gpu_uuid").size()
    found = []
    if (fewest := int(counts.min()) if len(counts) else 0) < LEAST:
        found.append(
            f"the window of {wall_ns / 1e6:.0f} ms holds {fewest} sample(s), and it takes {LEAST} to say anything: "
            "raise sample.window, or lower sample.interval_ms"
        )
    elif len(set(ran_on)) > len(counts):
        found.append(f"of {len(set(ran_on))} GPUs {len(counts)} were sampled, those of the first node")
    return found


def interval_ms(table: pd.DataFrame) -> float | None:
    """The mean time from a GPU's sample to its next."""
    apart = table.groupby("gpu_uuid")["t_ns"].diff().dropna()
    return round(float(apart.mean()) / 1e6, 3) if len(apart) else None


def of_cell(table: pd.DataFrame, facts: Mapping[str, Any]) -> dict[str, float]:
    """Over the window: mean power and energy a step of all GPUs together, mean clock, highest temperature.

    What the GPUs do not tell is left out. Energy is that between the counter's first and last move, and the integral
    of power, each brought to the whole window by its length: the columns' names say which.
    """
    of_gpus = [rows for _, rows in table.groupby("gpu_uuid")]
    power = sum(mean_power_w(rows, facts["power_is"] == MEAN) for rows in of_gpus)
    counted = sum(counted_power_w(rows) for rows in of_gpus)
    step_s = facts["window_wall_ns"] / facts["steps"] / 1e9
    found = {
        "power_w": power,
        "step_energy_power_j": power * step_s,
        "step_energy_counter_j": counted * step_s,
        "sm_clock_hz": table["sm_clock_hz"].mean(),
        "temperature_max_c": table["temperature_c"].max(),
    }
    return {name: float(value) for name, value in found.items() if not np.isnan(value)}


def mean_power_w(rows: pd.DataFrame, averaged: bool) -> float:
    """The mean power of a GPU, by the trapezoidal rule; not a number where fewer than LEAST samples tell it.

    averaged: whether each sample is a mean of the last second.

    >>> mean_power_w(pd.DataFrame({"t_ns": range(10), "power_w": [100.0] * 5 + [200.0] * 5}), averaged=False)
    150.0
    """
    told = rows[rows["power_w"].notna() & (rows["t_ns"] >= SECOND_NS * averaged)]
    if len(told) < LEAST:
        return float("nan")
    at = told["t_ns"].to_numpy(dtype=float)
    return float(np.trapezoid(told["power_w"], at) / (at[-1] - at[0]))


def counted_power_w(rows: pd.DataFrame) -> float:
    """The mean power of a GPU from its counter's first move to its last; not a number where it moves less than LEAST.

    Both ends are moves, as the counter stands still for longer than a sample takes.

    >>> moving = [joule // 2 * 2 for joule in range(22)]
    >>> counted_power_w(pd.DataFrame({"t_ns": [n * 10**7 for n in range(22)], "energy_j": moving}))
    100.0
    """
    moves = rows[rows["energy_j"].diff() > 0]
    if len(moves) < LEAST:
        return float("nan")
    first, last = moves.iloc[0], moves.iloc[-1]
    return float((last["energy_j"] - first["energy_j"]) / (last["t_ns"] - first["t_ns"]) * 1e9)
