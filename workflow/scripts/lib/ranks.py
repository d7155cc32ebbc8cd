"""How a cell's processes on several GPUs share a step: computing, communicating, waiting, and how unlike they are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from workflow.scripts.lib import nsys_steps, nsys_tables
from workflow.scripts.lib.cell_tables import CELL
from workflow.scripts.lib.files import DataError

TIMES = ["wall_ns", "busy_ns", "compute_ns", "communication_ns", "overlap_ns", "exposed_ns", "copy_ns", "idle_ns"]
COLUMNS = ["host", "rank", "steps", *TIMES, "launches"]


def by_rank(paths: Iterable[Path], ending: str, processes: int, what: str) -> list[tuple[str, int, Path]]:
    """Host, rank and file of each of a cell's processes, by rank; files are named `{host}.{rank}{ending}`.

    Raises:
        DataError: a process has none; the message calls it by what it is.
    """
    found = {}
    for path in paths:
        host, _, number = path.name.removesuffix(ending).rpartition(".")
        found[int(number)] = (host, int(number), path)
    missing = sorted(set(range(processes)) - set(found))
    if missing:
        raise DataError(f"{processes} processes, but no {what} of rank {', '.join(map(str, missing))}")
    return [found[number] for number in sorted(found)]


def of_traces(paths: Iterable[Path], processes: int, whole_run: bool = False) -> pd.DataFrame:
    """A row a process of one cell, times and launches per step, by rank.

    Args:
        paths: traces as SQLite, each named `{host}.{rank}.sqlite`; processes: that the cell has.
        whole_run: whether more was traced than the window.

    `compute_ns` is time in which a kernel ran that does not communicate, `communication_ns` one of NCCL's, of which
    `overlap_ns` beside others and `exposed_ns` alone; NCCL's kernels wait for the other processes, so that what one of
    them lags behind is the others' communication.

    Raises:
        DataError: a process left no trace, or one without steps.
    """
    rows = []
    for host, number, path in by_rank(paths, ".sqlite", processes, "trace"):
        steps = nsys_steps.where_time_goes(path, whole_run)
        if steps.empty:
            what = nsys_tables.NO_STEP if whole_run else "holds no step: see the log of the profiling job"
            raise DataError(f"{path} {what}")
        rows.append({"host": host, "rank": number, **steps.iloc[0]})
    table = pd.DataFrame(rows, columns=["host", "rank", *nsys_steps.COLUMNS])
    table["exposed_ns"] = table["communication_ns"] - table["overlap_ns"]
    table["compute_ns"] = table["kernel_ns"] - table["exposed_ns"]
    return table.astype({"steps": int})[COLUMNS]


def across_cells(tables: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """The rows of all cells, with shares of the step and how far each process's computing is from the cell's mean.

    `waiting_ns` is the process's communication beyond the shortest in its cell, which waits for nobody: time that it
    spent on waiting for the others. `communication_share` and `exposed_share` are of the step's wall time,
    `overlap_share` of the communication; `imbalance` is the process's compute_ns over the mean of its cell's, less one.
    """
    frames = [table.assign(**cell) for cell, table in tables]
    together = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*CELL, *COLUMNS])
    cells = together.groupby(CELL)
    mean = cells["compute_ns"].transform("mean")
    together["waiting_ns"] = together["communication_ns"] - cells["communication_ns"].transform("min")
    together["communication_share"] = together["communication_ns"] / together["wall_ns"]
    together["exposed_share"] = together["exposed_ns"] / together["wall_ns"]
    together["overlap_share"] = together["overlap_ns"] / together["communication_ns"].where(
        together["communication_ns"] > 0
    )
    together["imbalance"] = together["compute_ns"] / mean.where(mean > 0) - 1
    shares = ["waiting_ns", "communication_share", "exposed_share", "overlap_share", "imbalance"]
    return together[[*CELL, *COLUMNS, *shares]]


def read(paths: Sequence[str]) -> pd.DataFrame:
    """The table across cells at the one path; without rows where there is no path."""
    return pd.read_csv(paths[0]) if paths else across_cells([])
