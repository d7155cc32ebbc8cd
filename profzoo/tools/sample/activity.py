"""Summarizes NVML samples of a cell; NVML has no values for kernels or ranges."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo.formatting import number
from profzoo.io import sidecars as fact
from profzoo.io.columns import NUMBER, TEXT, Column
from profzoo.tools.sample import tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

TABLE = tables.TABLE
FACTS: fact.Needs = {
    "power_is": fact.TEXT,
    "gaps": fact.LIST,
    "window_wall_ns": fact.COUNT,
    "steps": fact.SEVERAL,
    "items": fact.or_null(fact.SEVERAL),
    "processes?": fact.PROCESSES,
}
# What the columns of `summarise_cell` mean.
OF_CELL: Mapping[str, Column] = {
    "power_w": Column(NUMBER.or_missing, "Mean power of all GPUs of the cell together.", "W", "sample"),
    "step_energy_power_j": Column(
        NUMBER.or_missing, "Energy per step: power integrated over the window.", "J", "sample"),
    "step_energy_counter_j": Column(NUMBER.or_missing, "Energy per step by the GPUs' counters.", "J", "sample"),
    "item_energy_power_j": Column(
        NUMBER.or_missing, "Energy per sample of the data: power integrated over the window.", "J", "sample"),
    "item_energy_counter_j": Column(
        NUMBER.or_missing, "Energy per sample of the data by the GPUs' counters.", "J", "sample"),
    "energy_error": Column(
        NUMBER.or_missing, "One move of the energy counter, as a part of all its moves in the window.",
        "fraction", "sample"),
    "sm_clock_hz": Column(NUMBER.or_missing, "Mean clock of the SMs.", "Hz", "sample"),
    "sm_clock_high_hz": Column(
        NUMBER.or_missing, "Clock of the SMs that one sample in twenty exceeds.", "Hz", "sample"),
    "temperature_max_c": Column(NUMBER.or_missing, "Highest temperature.", "°C", "sample"),
    "throttled_share": Column(
        NUMBER.or_missing, "Part of the samples in which something slowed the GPU down.", "fraction", "sample"),
    "clocks": Column(TEXT, "How far the clock moved and what held it back; empty where it was steady.", tool="sample"),
}  # fmt: skip


def _format_energy(joules: float) -> str:
    return f"{number(joules)} J"


COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "power": ("power_w", "{:,.0f} W".format),
    "energy per step (power)": ("step_energy_power_j", _format_energy),
    "energy per step (counter)": ("step_energy_counter_j", _format_energy),
    "energy per sample (counter)": ("item_energy_counter_j", _format_energy),
    "SM clock": ("sm_clock_hz", lambda value: f"{value / 1e6:,.0f} MHz"),
    "hottest": ("temperature_max_c", "{:.0f} °C".format),
    "clocks": ("clocks", str),
}


def summarise_cell(table: pd.DataFrame, facts: "Sidecar") -> Mapping[str, float | str]:
    """Return power, energy, clock rate, temperature, and why clocks moved; empty if the sidecar reports gaps."""
    return {} if facts["gaps"] else tables.summarise_cell(table, facts)
