"""Declares the columns of exported ncu tables and checks the census of all launches."""

import fnmatch
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, FLAG, GPU, MEASURED, NUMBER, TEXT, Column, select
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.tools.ncu.census import OF_NSYS
from profzoo.tools.ncu.quantities import COLUMNS, GPU_TIME, NUMBERS, QUANTITIES
from profzoo.tools.ncu.raw_page import CONFIGURATION, count_configurations
from profzoo.tools.nsys.steps import step_sequence

# Units of metrics by their names, where more is known than NVIDIA's names.
_UNITS = {
    "*__bytes*.sum": "byte",
    "*__time_duration*": "ns",
    "*.pct": "%",
    "*pct_of_peak*": "%",
    "*_pct": "%",
    "*.ratio": "ratio",
    "*.per_cycle_active": "ratio",
    "*issue_active.sum": "cycles",
    "*__t_sectors*.sum": "sectors",
    "*_requests_*.sum": "requests",
    "*__cycles_*": "cycles",
    "*inst*.sum": "instructions",
}
_LINKS = {
    "nvlink__*": "NVLink between GPUs",
    "c2clink__*": "Link between the GPU and the processor (C2C)",
    "numa__*": "Place of the GPUs among the NUMA nodes of the machine",
}
_METRIC = "Metric of Nsight Compute: `ncu --query-metrics` says what it counts."


def _declare_metric(metric: str) -> Column:
    """Return the column of a metric that quantities are made of, or brought to one another by."""
    used = [name for name, quantity in QUANTITIES.items() if any(metric in one.factors for one in quantity.sums)]
    units = [unit for pattern, unit in _UNITS.items() if fnmatch.fnmatchcase(metric, pattern)]
    means = f"{_METRIC} In `kernels.csv`: {', '.join(f'`{name}`' for name in used)}." if used else _METRIC
    (unit, *_) = [*units, *(COLUMNS[name].unit for name in used)]
    return Column(NUMBER.or_missing, means, unit, "ncu", GPU if unit == "ns" else "")


# Metrics that are numbers in every table, and others by patterns of their names.
METRICS: Mapping[str, Column] = {
    **{metric: _declare_metric(metric) for metric in sorted(NUMBERS)},
    GPU_TIME: Column(
        NUMBER.or_missing, "GPU time of the launch under ncu, where it runs alone; by nsys where its trace is the "
        "census.", "ns", "ncu", GPU),
    **{
        pattern: Column(MEASURED, _METRIC, unit, "ncu", GPU if unit == "ns" else "")
        for pattern, unit in _UNITS.items()
    },
    **{
        pattern: Column(
            MEASURED, f"{what}, as ncu describes it; GPUs without it have no such column.", "see sidecar", "ncu")
        for pattern, what in _LINKS.items()
    },
    "*__*": Column(MEASURED, f"{_METRIC} Its unit is in the sidecar (`units`).", "see sidecar", "ncu"),
}  # fmt: skip
TABLE = Table(
    columns={
        "id": Column(COUNT, "Number of the launch in the report, counted from 0 (over all runs of ncu).", tool="ncu"),
        **shared("kernel", "mangled", "function"),
        "range": Column(TEXT, "Part of the step (NVTX range) that was open when the kernel was launched.", tool="ncu"),
        **shared(
            "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_static_bytes",
            "smem_dynamic_bytes"),
        "launches": Column(COUNT.or_missing, "Launches of this configuration in the window, by the census.", "count"),
    },
    # What the launches of a set stand for.
    optional={
        "multiplicity": Column(NUMBER.or_missing, "Launches of the stratum that this one stands for.", "count"),
        "time_spread": Column(
            NUMBER.or_missing, "Longest over shortest GPU time of the launches in the stratum.", "ratio", clock=GPU),
        "run": Column(COUNT.or_missing, "Number of the run of ncu that profiled the launch.", tool="ncu"),
        "launch": Column(COUNT.or_missing, "Place of the launch in the census of all launches."),
        "stratum": Column(
            COUNT.or_missing, "Number of the stratum (set of like launches) that the launch was sampled from."),
        "as_planned": Column(FLAG, "Whether the profiled launch is the planned one."),
    },
    families=METRICS,
    others=MEASURED,
    key=["id"],
)  # fmt: skip


def _every(table: pd.DataFrame) -> str | None:
    """What is wrong with a census that lacks launches, which each say how many there are of their configuration."""
    # ncu counts launches from 0 on.
    if sorted(table["id"]) != list(range(len(table))):
        return f"launches are not those from 0 to {len(table) - 1}: rows are missing"
    counts = count_configurations(table).reindex(pd.MultiIndex.from_frame(table[CONFIGURATION])).to_numpy()
    lacking = table["launches"].to_numpy() != counts
    if lacking.any():
        row = table.iloc[int(lacking.argmax())]
        return f"of launch {row['id']} there are not {row['launches']:.0f} alike: rows are missing"
    return None


CENSUS = replace(
    TABLE,
    columns={
        **TABLE.columns,
        GPU_TIME: replace(METRICS[GPU_TIME], kind=AMOUNT),
        **select(TABLE.columns, "launches", kind=COUNT),
    },
    holds=_every,
)


def read_census(path: str | Path) -> pd.DataFrame:
    """Read all launches of a cell's window, in order: counted by ncu, or traced by nsys with their durations.

    Raises:
        DataError: as of reading.read, and where launches are missing.
    """
    if not is_nsys_census(path):
        return reading.read(path, CENSUS).sort_values("id", kind="stable", ignore_index=True)
    table = reading.read(path, step_sequence.TABLE).rename(columns={"ns": GPU_TIME})
    counts = count_configurations(table).reindex(pd.MultiIndex.from_frame(table[CONFIGURATION]))
    return table.assign(launches=counts.to_numpy())


def is_nsys_census(path: str | Path) -> bool:
    """Return whether nsys traced the launches of a census."""
    return str(path).endswith(OF_NSYS)
