"""Measures what each process of a cell on several GPUs did per step, from its trace."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import column_types
from profzoo.io import sidecars as fact
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys import dictionary
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import trace as nsys_trace
from profzoo.tools.rank_files import files_by_rank

TIMES = ["wall_ns", "busy_ns", "compute_ns", "communication_ns", "overlap_ns", "exposed_ns", "copy_ns", "idle_ns"]
COLUMNS = ["host", "rank", "steps", *TIMES, "launches"]
TABLE = Table(
    columns=dict.fromkeys(COLUMNS, column_types.NUMBER)
    | {"host": column_types.TEXT, "rank": column_types.COUNT, "steps": column_types.COUNT},
    key=["rank"],
    about=dictionary.RANKS,
)


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
