"""Makes the table of collective operations by kind and size: times, waiting, and bandwidth against the link's."""

from collections.abc import Mapping

import pandas as pd

from profzoo.io import column_types
from profzoo.io.columns import COUNT, FRACTION, GPU, Column
from profzoo.io.csv_tables import Table
from profzoo.op_costs.collectives import bus_factor
from profzoo.tools.torch import link_rates
from profzoo.tools.torch.rank_operations import Operations, measure_transfers

KEY = ["collective", "dtype", "bytes", "group_size", "hosts"]
TIMES = ["transfer_ns", "transfer_min_ns", "transfer_max_ns", "waiting_ns"]
RATES = ["algorithm_bytes_per_s", "bus_bytes_per_s", "probe_bus_bytes_per_s", "probe_share"]
COLUMNS = [*KEY, "count", *TIMES, *RATES, "link"]
ABOUT: Mapping[str, Column] = {
    "collective": Column("Collective operation, such as `all_reduce`.", tool="torch"),
    "dtype": Column("Type of its elements, as torch.profiler names it.", tool="torch"),
    "bytes": Column("Size of the operation, as nccl-tests counts it: of the whole buffer.", "byte", "torch"),
    "group_size": Column("Processes that take part.", COUNT, "torch"),
    "hosts": Column("Hosts on which these processes run.", COUNT, "torch"),
    "count": Column("Operations in the traced steps; one counts once for all of its processes.", COUNT, "torch"),
    "transfer_ns": Column(
        "Median time from the moment when the last process begins the operation to its end: without waiting.",
        "ns", "torch", GPU,
    ),
    "transfer_min_ns": Column("Shortest such time.", "ns", "torch", GPU),
    "transfer_max_ns": Column("Longest such time.", "ns", "torch", GPU),
    "waiting_ns": Column(
        "Mean time that a process waits in the operation for the last one to begin it.", "ns", "torch", GPU
    ),
    "algorithm_bytes_per_s": Column(
        "Algorithm bandwidth of nccl-tests: size over `transfer_ns`.", "byte/s", "torch", GPU
    ),
    "bus_bytes_per_s": Column(
        "Bus bandwidth of nccl-tests: the same times 2(n-1)/n for an all-reduce of n processes, and (n-1)/n for "
        "all-gather, reduce-scatter and all-to-all.",
        "byte/s", "torch", GPU,
    ),
    "probe_bus_bytes_per_s": Column(
        "Bus bandwidth that a probe of the link reached with this operation and size and nothing beside it, "
        "interpolated between sizes; empty if the link was not probed.",
        "byte/s",
    ),
    "probe_share": Column("`bus_bytes_per_s` over that of the probe.", FRACTION),
    "link": link_rates.ABOUT["link"],
}  # fmt: skip
TABLE = Table(
    columns={
        **dict.fromkeys(["collective", "dtype", "link"], column_types.TEXT),
        **dict.fromkeys(["bytes", "group_size", "hosts", "count"], column_types.COUNT),
        **dict.fromkeys(TIMES, column_types.AMOUNT),
        **dict.fromkeys(RATES, column_types.or_missing(column_types.AMOUNT)),
    },
    key=KEY,
    ranges={"transfer_ns": ("transfer_min_ns", "transfer_max_ns")},
    about=ABOUT,
)


def tabulate_collectives(operations: Operations, probe: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kind, type, size and group of operations, the longest total transfer first.

    probe: rows of link_rates.TABLE; none if the link was not probed.
    """
    grouped = measure_transfers(operations).groupby(KEY, sort=False)
    table = grouped.agg(
        count=("transfer_ns", "size"),
        transfer_ns=("transfer_ns", "median"),
        transfer_min_ns=("transfer_ns", "min"),
        transfer_max_ns=("transfer_ns", "max"),
        waiting_ns=("waiting_ns", "mean"),
        total=("transfer_ns", "sum"),
    ).reset_index()
    table["algorithm_bytes_per_s"] = (table["bytes"] / table["transfer_ns"] * 1e9).where(table["bytes"] > 0)
    table["bus_bytes_per_s"] = [
        row.algorithm_bytes_per_s * bus_factor(str(row.collective), int(row.group_size)) for row in table.itertuples()
    ]
    table["probe_bus_bytes_per_s"] = [
        link_rates.reached_bus_rate(probe, str(row.collective), int(row.bytes), int(row.group_size))
        for row in table.itertuples()
    ]
    table["probe_share"] = table["bus_bytes_per_s"] / table["probe_bus_bytes_per_s"]
    links = sorted({str(link) for link in probe["link"] if link})
    table["link"] = ", ".join(links)
    return table.sort_values("total", ascending=False, kind="stable")[COLUMNS].reset_index(drop=True)
