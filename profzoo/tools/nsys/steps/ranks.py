"""Measures what each process of a cell on several GPUs did per step, from its trace."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.columns import COUNT, GPU, NUMBER, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.defaults import files_by_rank
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.steps import steps as nsys_steps

TIMES = ["wall_ns", "busy_ns", "compute_ns", "communication_ns", "overlap_ns", "exposed_ns", "copy_ns", "idle_ns"]
TABLE = Table(
    columns={
        "host": Column(TEXT, "Name of the node that the process ran on.", tool="nsys"),
        "rank": Column(COUNT, "Rank of the process.", tool="nsys"),
        **select(nsys_steps.TABLE.columns, "steps", "wall_ns", "busy_ns"),
        "compute_ns": Column(
            NUMBER, "Time per step in which a kernel ran that does not communicate.", "ns", "nsys", GPU),
        **select(nsys_steps.TABLE.columns, "communication_ns", "overlap_ns"),
        "exposed_ns": Column(NUMBER, "Part of `communication_ns` with no other kernel beside it.", "ns", "nsys", GPU),
        **select(nsys_steps.TABLE.columns, "copy_ns", "idle_ns", "launches"),
    },
    key=["rank"],
)  # fmt: skip
COLUMNS = [*TABLE.columns]


def tabulate_ranks(paths: Iterable[Path], processes: int, whole_run: bool = False) -> pd.DataFrame:
    """Return one row per process of a cell, by rank, with times and launches per step.

    Args:
        paths: exports (SQLite), each named `{host}.{rank}.sqlite`.
        processes: number of processes of the cell.
        whole_run: the traces hold more than the window.

    `compute_ns` is the time with a running kernel that does not communicate, and `communication_ns` with one that does.
    Its parts are `overlap_ns`, beside other kernels, and `exposed_ns`, alone. Communication kernels wait for the other
    processes, so the delay of one process appears as communication time of the others.

    Raises:
        DataError: a process left no trace, or one without steps.
    """
    rows = []
    for host, number, path in files_by_rank(paths, ".sqlite", processes, "trace"):
        steps = nsys_steps.where_time_goes(path, whole_run)
        if steps.empty:
            raise DataError(f"{path} {nsys_trace.explain_no_steps(path, whole_run)}")
        rows.append({"host": host, "rank": number, **steps.iloc[0]})
    table = pd.DataFrame(rows, columns=["host", "rank", *nsys_steps.COLUMNS])
    table["exposed_ns"] = table["communication_ns"] - table["overlap_ns"]
    table["compute_ns"] = table["kernel_ns"] - table["exposed_ns"]
    return table.astype({"steps": int})[COLUMNS]


def find_waits(communication_ns: pd.Series) -> pd.Series:
    """Return how long each process of a cell waits for others in its communication, in ns: what the shortest has not.

    >>> find_waits(pd.Series([4.0, 3.0])).tolist()
    [1.0, 0.0]
    """
    return communication_ns - communication_ns.min()


def main(traces: str, sidecar: str, csv: str) -> None:
    """Read the traces of a cell's processes from a folder, and their sidecar; write the cell's table."""
    facts = read_json(sidecar, {"ranks": fact.PROCESSES, "capture": fact.TEXT})
    write_csv(tabulate_ranks(Path(traces).glob("*.sqlite"), len(facts["ranks"]), facts["capture"] == "run"), csv)
