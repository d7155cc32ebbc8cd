"""Tells how fast a link was for an operation of a given size, from a probe that measured some sizes."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.columns import COUNT, CPU, Column
from profzoo.io.csv_tables import Table
from profzoo.op_costs.collectives import bus_factor

ABOUT: Mapping[str, Column] = {
    "collective": Column("Collective operation, such as `all_reduce`."),
    "bytes": Column("Size of the operation, as nccl-tests counts it: of the whole buffer.", "byte"),
    "group_size": Column("Processes that took part.", COUNT),
    "calls": Column("Calls in a row that were timed together.", COUNT),
    "time_ns": Column("Time of a call: the shortest mean of several series, on the slowest process.", "ns", clock=CPU),
    "algorithm_bytes_per_s": Column("Algorithm bandwidth of nccl-tests: size over time.", "byte/s"),
    "bus_bytes_per_s": Column(
        "Bus bandwidth of nccl-tests: the same times 2(n-1)/n for an all-reduce of n processes, and (n-1)/n for "
        "all-gather, reduce-scatter and all-to-all.",
        "byte/s",
    ),
    "link": Column("What joins the GPUs: `NV` and the number of NVLinks, PCIe's path, or `network`; empty if unknown."),
}
COLUMNS = ["collective", "bytes", "group_size", "calls", "time_ns", "algorithm_bytes_per_s", "bus_bytes_per_s", "link"]
TABLE = Table(
    columns={
        **dict.fromkeys(["collective", "link"], column_types.TEXT),
        **dict.fromkeys(["bytes", "group_size", "calls"], column_types.COUNT),
        "time_ns": column_types.AMOUNT,
        **dict.fromkeys(["algorithm_bytes_per_s", "bus_bytes_per_s"], column_types.or_missing(column_types.AMOUNT)),
    },
    key=["collective", "bytes", "group_size"],
    about=ABOUT,
)


def expected_time(probe: pd.DataFrame, collective: str, size: int, processes: int) -> float:
    """Return the time in ns that the probe expects of an operation; nan where it has no such operation.

    Between measured sizes, time is interpolated linearly in the logarithms of both. Smaller operations take as long as
    the smallest, as they are bound by latency; larger ones have the bandwidth of the largest.
    """
    rows = probe[(probe["collective"] == collective) & (probe["group_size"] == processes)].sort_values("bytes")
    if rows.empty or size <= 0:
        return float("nan")
    sizes, times = rows["bytes"].to_numpy(dtype=float), rows["time_ns"].to_numpy(dtype=float)
    if size > sizes[-1]:
        return float(times[-1] * size / sizes[-1])
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))


def reached_bus_rate(probe: pd.DataFrame, collective: str, size: int, processes: int) -> float:
    """Return the bus bandwidth in byte/s that the probe reached for an operation; nan where it has none."""
    return bus_factor(collective, processes) * size / expected_time(probe, collective, size, processes) * 1e9
