"""Summarizes NVML samples of a cell; NVML has no values for kernels or ranges."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.tools.sample import dictionary, tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

TABLE = tables.TABLE
FACTS: fact.Needs = {
    "power_is": fact.TEXT,
    "gaps": fact.LIST,
    "window_wall_ns": fact.COUNT,
    "steps": fact.SEVERAL,
    "items": fact.SEVERAL,
    "processes?": fact.PROCESSES,
}
# What the columns of `summarise_cell` mean.
OF_CELL = dictionary.OF_CELL
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "power": ("power_w", "{:,.0f} W".format),
    "energy per step (power)": ("step_energy_power_j", "{:,.3g} J".format),
    "energy per step (counter)": ("step_energy_counter_j", "{:,.3g} J".format),
    "energy per sample (counter)": ("item_energy_counter_j", "{:,.3g} J".format),
    "SM clock": ("sm_clock_hz", lambda value: f"{value / 1e6:,.0f} MHz"),
    "hottest": ("temperature_max_c", "{:.0f} °C".format),
    "clocks": ("clocks", str),
}


def summarise_cell(table: pd.DataFrame, facts: "Sidecar") -> Mapping[str, float | str]:
    """Return power, energy, clock rate, temperature, and why clocks moved; empty if the sidecar reports gaps."""
    return {} if facts["gaps"] else tables.summarise_cell(table, facts)
