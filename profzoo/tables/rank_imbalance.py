"""Makes the table of the processes of cells on several GPUs: how much they differ, one row per process."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from profzoo.tables import cell_tables, schemas
from profzoo.tables.schemas import CELL, RANK_SHARES
from profzoo.tools.nsys.ranks import COLUMNS, TABLE, find_waits


def across_cells(tables: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """Return the rows of all cells, with shares of the step and each process's deviation from the cell's mean.

    `waiting_ns` is the process's communication time beyond the shortest in its cell: the time that it waits for other
    processes. `communication_share` and `exposed_share` are relative to the step's wall time, and `overlap_share` to
    the communication time. `imbalance` is the process's compute_ns over the mean of its cell, minus one.
    """
    frames = [table.assign(**cell) for cell, table in tables]
    together = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*CELL, *COLUMNS])
    cells = together.groupby(CELL)
    mean = cells["compute_ns"].transform("mean")
    together["waiting_ns"] = cells["communication_ns"].transform(find_waits)
    together["communication_share"] = together["communication_ns"] / together["wall_ns"]
    together["exposed_share"] = together["exposed_ns"] / together["wall_ns"]
    together["overlap_share"] = together["overlap_ns"] / together["communication_ns"].where(
        together["communication_ns"] > 0
    )
    together["imbalance"] = together["compute_ns"] / mean.where(mean > 0) - 1
    return together[[*CELL, *COLUMNS, *RANK_SHARES]]


def tabulate_ranks(paths: Sequence[str]) -> pd.DataFrame:
    """Return the table of all processes from the cells' files."""
    return across_cells(cell_tables.read(paths, TABLE))


def read(paths: Sequence[str]) -> pd.DataFrame:
    """Read the table across cells, if there is a path; else return it without rows."""
    return schemas.read_table("ranks", paths[0]) if paths else across_cells([])
