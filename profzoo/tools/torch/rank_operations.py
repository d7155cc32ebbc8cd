"""Matches the collective operations of a cell's processes, and separates waiting for late processes from transfer.

An operation can only begin to transfer when the last process has come to it. So its transfer lasts from the last start
to the last end, and a process that came earlier has waited from its own start to the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.tools.torch.collective_events import Collectives
from profzoo.tools.torch.rank_clocks import Clocks, align_clocks

# What is the same for all processes of an operation, besides its place among others like it.
SAME = ["group", "group_size", "collective", "dtype", "bytes"]
OF_ALL = ["first_start_ns", "last_start_ns", "last_end_ns"]


class NoOperationsError(DataError):
    """The traces hold no operation that all of its processes recorded; the message says why."""


@dataclass(frozen=True)
class Process:
    """A process of a cell: its host, its rank, and its operations."""

    host: str
    rank: int
    collectives: Collectives


@dataclass(frozen=True)
class Operations:
    """Operations of all processes on one clock.

    rows: one row per operation and process, by start: operation (a number), host, rank, step, range, SAME, start_ns,
    end_ns, and OF_ALL, which are the same for all processes of an operation. clocks: how times came to one clock.
    left_out: one clause for each kind of operation that the rows lack, with its number and the reason.
    """

    rows: pd.DataFrame
    clocks: Clocks
    left_out: Sequence[str]


def match_operations(processes: Sequence[Process]) -> Operations:
    """Match the operations of processes.

    Operations on the same group, of one kind and size, are matched by the number that NCCL gave them, or else by their
    order within a step.

    Raises:
        NoOperationsError: no operation was recorded by all of its processes.
        DataError: the clocks of hosts cannot be compared.
    """
    frames = [one.collectives.table.assign(host=one.host, rank=one.rank) for one in processes]
    rows = pd.concat(frames, ignore_index=True)
    # Without a number, steps keep an operation that one process did not record from shifting all later ones.
    numbered = (rows["sequence"] >= 0).all()
    rows["of"] = rows["sequence"] if numbered else rows["step"]
    rows["place"] = rows.groupby(["rank", *SAME, "of"]).cumcount()
    rows["operation"] = rows.groupby([*SAME, "of", "place"], sort=False).ngroup()
    members = rows.groupby("operation")["rank"].transform("nunique")
    # Some of torch's operations name no group: all processes of the cell are meant.
    whole = members == rows["group_size"].where(rows["group_size"] > 0, len(processes))
    found = rows[whole & (members > 1)].copy()
    if found.empty:
        raise NoOperationsError(_why_none(rows, processes))
    clocks = align_clocks(found)
    shift = found["host"].map(clocks.offsets_ns).astype("int64")
    found["start_ns"] -= shift
    found["end_ns"] -= shift
    grouped = found.groupby("operation")
    found["first_start_ns"] = grouped["start_ns"].transform("min")
    found["last_start_ns"] = grouped["start_ns"].transform("max")
    found["last_end_ns"] = grouped["end_ns"].transform("max")
    kept = found[found["last_end_ns"] > found["last_start_ns"]]
    if kept.empty:
        raise DataError("every collective operation ends on all processes before the last one begins it: clocks differ")
    incomplete = rows["operation"].nunique() - kept["operation"].nunique()
    left_out = [f"{incomplete} operation{'s' * (incomplete > 1)} that not all processes recorded"] if incomplete else []
    left_out += _describe_unmatched(processes)
    columns = ["operation", "host", "rank", "step", "range", *SAME, "start_ns", "end_ns", *OF_ALL]
    return Operations(kept.sort_values(["start_ns", "rank"])[columns].reset_index(drop=True), clocks, left_out)


def _describe_unmatched(processes: Sequence[Process]) -> list[str]:
    """Return a clause for each kind of communication whose bandwidth and skew cannot be told."""
    pairwise = sum(one.collectives.pairwise for one in processes)
    unknown = sum(one.collectives.unknown for one in processes)
    found = [f"{pairwise} sends and receives, in which only two processes take part"] if pairwise else []
    if unknown:
        found.append(
            f"{unknown} communication kernels without `Collective name`, size or type, which torch.profiler records "
            "from torch 2.3 on, but not for batch_isend_irecv"
        )
    return found


def _why_none(rows: pd.DataFrame, processes: Sequence[Process]) -> str:
    if rows.empty and (others := _describe_unmatched(processes)):
        return f"the traces hold no other communication than {' and '.join(others)}: bandwidth and skew cannot be told"
    if rows.empty:
        return "the steps of the traces hold no collective operation: raise torch.window, so that more steps are traced"
    counts = ", ".join(f"{count} of rank {rank}" for rank, count in rows["rank"].value_counts().sort_index().items())
    return f"no collective operation was recorded by all processes of its group: there are {counts}; raise torch.window"


def measure_transfers(operations: Operations) -> pd.DataFrame:
    """Return one row per operation: SAME, step, transfer_ns, and the mean waiting_ns of its processes."""
    rows = operations.rows.assign(waiting_ns=operations.rows["last_start_ns"] - operations.rows["start_ns"])
    one = rows.groupby("operation").agg(
        {**dict.fromkeys([*SAME, "step", *OF_ALL], "first"), "waiting_ns": "mean", "host": "nunique"}
    )
    one["transfer_ns"] = (one["last_end_ns"] - one["last_start_ns"]).astype(np.int64)
    return one.rename(columns={"host": "hosts"})[[*SAME, "hosts", "step", "transfer_ns", "waiting_ns"]]
