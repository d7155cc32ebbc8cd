"""Makes the table of skew: which process comes late to collective operations, by how much, and in which part.

A process is late at an operation by the time between the first process's start and its own. What it lost in each part
of its step is the time that it spent there since the processes were last together, less that of the first process. So
the parts add up to how late it is. If processes come to several operations before they are together again, as they do
with operations beside the backward pass, the same delay shows in each of them: the largest counts.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.columns import COUNT, CPU, GPU, Column
from profzoo.io.csv_tables import Table
from profzoo.tools.torch.rank_clocks import ENDS, SHARED
from profzoo.tools.torch.rank_operations import Operations
from profzoo.tools.torch.rank_timeline import PARTS, Timeline

KEY = ["rank", "step", "range"]
COLUMNS = ["host", *KEY, "late_ns", "waiting_ns", "last", "operations", "clock", "clock_error_ns"]
ABOUT: Mapping[str, Column] = {
    "host": Column("Name of the node that the process ran on.", tool="torch"),
    "rank": Column("Rank of the process.", tool="torch"),
    "step": Column("Number of the step in the trace, counted from 0.", tool="torch"),
    "range": Column("Part of the step, or empty for time between parts and steps.", tool="torch"),
    "late_ns": Column(
        "How much later than the first process this one comes to collective operations because of this part; less "
        "than 0 where it was faster. A step's parts add up to its lateness.",
        "ns", "torch", GPU,
    ),
    "waiting_ns": Column(
        "How long the process waits for later ones in the operations that this part starts.", "ns", "torch", GPU
    ),
    "last": Column("Operations of this part at which the process came last.", COUNT, "torch"),
    "operations": Column("Collective operations that the process starts in this part of the step.", COUNT, "torch"),
    "clock": Column(
        f"`{SHARED}` if all processes share the clock of one host, `{ENDS}` if clocks of hosts were aligned by the "
        "ends of operations.",
        tool="torch",
    ),
    "clock_error_ns": Column(
        "How far ends of an operation lie apart on two hosts after that, in 95 % of all cases; empty with one host.",
        "ns", "torch", CPU,
    ),
}  # fmt: skip
TABLE = Table(
    columns={
        **dict.fromkeys(["host", "range", "clock"], column_types.TEXT),
        **dict.fromkeys(["rank", "step", "last", "operations"], column_types.COUNT),
        "late_ns": column_types.WHOLE,
        "waiting_ns": column_types.AMOUNT,
        "clock_error_ns": column_types.or_missing(column_types.AMOUNT),
    },
    key=KEY,
    about=ABOUT,
)


def tabulate_skew(operations: Operations, timelines: Mapping[int, Timeline]) -> pd.DataFrame:
    """Return one row per process, step and part of the step; timelines: by rank."""
    rows = _since_together(operations, timelines)
    rows["late_ns"] = rows["start_ns"] - rows["first_start_ns"]
    rows["waiting_ns"] = rows["last_start_ns"] - rows["start_ns"]
    rows["last"] = (rows["late_ns"] > 0) & (rows["waiting_ns"] == 0)
    of_process = rows.groupby(["rank", "group", "together"])
    counted = rows.index.isin(of_process["waiting_ns"].idxmax())
    started = rows.assign(waiting_ns=rows["waiting_ns"].where(counted, 0), operations=1)
    sums = started.groupby(KEY)[["waiting_ns", "last", "operations"]].sum()
    late = _lost_by_part(rows.loc[of_process["late_ns"].idxmax()], rows, timelines, operations.clocks.offsets_ns)
    table = late.to_frame().join(sums, how="outer").fillna(0)
    table = table[(table != 0).any(axis=1)].astype("int64").reset_index()
    places = {part: place for place, part in enumerate(PARTS)}
    hosts = dict(zip(rows["rank"], rows["host"], strict=True))
    error = operations.clocks.error_ns
    table = table.assign(host=table["rank"].map(hosts), clock=operations.clocks.kind)
    table["clock_error_ns"] = pd.NA if error is None else error
    order = table.assign(place=table["range"].map(places)).sort_values(["step", "rank", "place"]).index
    return table.loc[order, COLUMNS].reset_index(drop=True)


def _since_together(operations: Operations, timelines: Mapping[int, Timeline]) -> pd.DataFrame:
    """Return the operations' rows with `since_ns`, when all were last together before, and `together`, its number.

    Processes are together when the last one has come to an operation, before the first one comes to the next.
    """
    rows, offsets = operations.rows, operations.clocks.offsets_ns
    hosts = dict(zip(rows["rank"], rows["host"], strict=True))
    begin = min(line.first_ns - offsets[hosts[rank]] for rank, line in timelines.items() if rank in hosts)
    frames = []
    for _, own in rows.groupby("group"):
        ends = own.drop_duplicates("operation").sort_values("last_start_ns")
        last = np.searchsorted(ends["last_start_ns"].to_numpy(), own["first_start_ns"].to_numpy(), side="right") - 1
        since = np.where(last >= 0, ends["last_end_ns"].to_numpy()[np.maximum(last, 0)], begin)
        frames.append(own.assign(together=last, since_ns=np.minimum(since, own["first_start_ns"].to_numpy())))
    return pd.concat(frames).sort_index()


def _lost_by_part(
    late: pd.DataFrame, rows: pd.DataFrame, timelines: Mapping[int, Timeline], offsets: Mapping[str, int]
) -> pd.Series:
    """Return the time in ns that processes lost, by rank, step and part; late: the rows in which they were latest."""
    firsts = rows[rows["late_ns"] == 0].drop_duplicates("operation").set_index("operation")
    first = firsts.loc[late["operation"]].assign(since_ns=late["since_ns"].to_numpy()).reset_index()
    lost = _spent(late, timelines, offsets) - _spent(first, timelines, offsets)
    by_part = pd.DataFrame(lost, columns=pd.Index(PARTS, name="range"))
    by_part[["rank", "step"]] = late[["rank", "step"]].to_numpy()
    return by_part.groupby(["rank", "step"]).sum().stack().rename("late_ns")


def _spent(rows: pd.DataFrame, timelines: Mapping[int, Timeline], offsets: Mapping[str, int]) -> np.ndarray:
    """Return the time in ns that the rows' processes spent in each part between since_ns and start_ns."""
    found = np.zeros((len(rows), len(PARTS)), dtype=np.int64)
    shift = rows["host"].map(offsets).to_numpy(dtype=np.int64)
    begins, ends = (rows[name].to_numpy(dtype=np.int64) + shift for name in ("since_ns", "start_ns"))
    ranks = rows["rank"].to_numpy()
    for rank in np.unique(ranks):
        chosen = np.flatnonzero(ranks == rank)
        line = timelines[int(rank)]
        found[chosen] = line.until(ends[chosen]) - line.until(begins[chosen])
    return found
