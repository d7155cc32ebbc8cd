"""Exports the samples of a cell's window to one tidy CSV."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.sample import tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

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
    facts, raw = read_facts(samples_sidecar, NEEDS), reading.read(samples, tables.SAMPLES)
    windows = tables.process_windows(facts)
    if not all("window_began_ns" in window for window in windows):
        raise DataError(f"{samples} does not say which samples are in the window: collect it again")
    parts = [
        tables.select_window(raw, window["window_began_ns"], window["window_wall_ns"], process)
        for process, window in enumerate(windows)
    ]
    table = pd.concat(parts, ignore_index=True)
    ran_on = [uuid for one in facts.get("ranks", [facts]) if (uuid := one.get("device_uuid"))]
    gaps = [why_unsampled(facts)] if raw.empty else tables.find_gaps(table, windows, ran_on)
    told = [*gaps, *([] if gaps else tables.describe_coarse_energy(table))]
    for line in told:
        say(f"{csv}: {line}")
    limits = raw.groupby("gpu_uuid")["power_limit_mw"].first() / 1e3
    more = {
        "samples": int(table.groupby("gpu_uuid").size().min()) if len(table) else 0,
        "interval_reached_ms": tables.mean_interval_ms(table),
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
