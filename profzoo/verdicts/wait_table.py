"""Make the table of lines at which a cell's step waits for the GPU, with the time of their waits where it is known."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.range_names import PARTS
from profzoo.tables.schemas import CELL
from profzoo.verdicts import dictionary
from profzoo.verdicts.verdicts import CellKey
from profzoo.what_if.graph_obstacles import first_of_each_wait
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine

TEXTS = ("file", "function", "text", "operation", "range")
COLUMNS = [*CELL, "file", "line", "function", "text", "operation", "range", "calls", "wait_ns"]
WAITS_TABLE = Table(
    columns=dict.fromkeys(COLUMNS, column_types.TEXT)
    | {
        "line": column_types.COUNT,
        "calls": column_types.COUNT,
        "wait_ns": column_types.or_missing(column_types.AMOUNT),
    },
    about=dictionary.WAITS,
)
# By how much waits per step in the trace may differ from those of the observed step, relative.
AS_MANY = 0.1


def tabulate_waits(
    lines: "Mapping[CellKey, Sequence[BlockingLine]]", programs: Mapping[CellKey, Mapping[int, Program]]
) -> pd.DataFrame:
    """Return the table (COLUMNS), a row per cell and line.

    Args:
        lines: lines at which a step waits, by cell. programs: traced steps of each cell, by process.

    A trace does not tell which line waited. `wait_ns` is therefore known only of a line that is the only one of its
    part of the step, where the trace of a single process has as many waits in this part.
    """
    rows = []
    for cell, mine in lines.items():
        several = programs.get(cell, {})
        program = next(iter(several.values())) if len(several) == 1 else None
        for one, ns in _timed(mine, program):
            rows.append({**dict(zip(CELL, cell, strict=True)), **one, "wait_ns": ns})
    return pd.DataFrame(rows, columns=COLUMNS)


def _timed(lines: "Sequence[BlockingLine]", program: Program | None) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yield each line with the ns per step that it waits, NaN where unknown."""
    ranges = [one["range"] for one in lines]
    for one in lines:
        alone = program is not None and ranges.count(one["range"]) == 1
        calls, ns = waits_of_part(program, one["range"]) if program and alone else (0.0, np.nan)
        yield one, ns if abs(calls - one["calls"]) <= AS_MANY * one["calls"] else np.nan


def waits_of_part(program: Program, part: str) -> tuple[float, float]:
    """Return number and time in ns of the waits per step within a part of the step; part: empty for outside all parts.

    The time is NaN if the file of the program does not hold it.
    """
    host = program.host
    mine = (host["part"] == (PARTS.index(part) + 1 if part in PARTS else 0)).to_numpy()
    first = min(1, program.steps - 1)
    counted = mine & (host["step"] >= first).to_numpy()
    steps = program.steps - first
    calls = float((first_of_each_wait(program) & counted).sum()) / steps
    if "waited" not in host:
        return calls, np.nan
    return calls, float(host["waited"].to_numpy(dtype=float)[counted].sum()) / steps
