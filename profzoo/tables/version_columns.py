"""Adds the versions that each cell was measured with to the table of cells."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.tables.schemas import CELL, VERSION, VERSIONS
from profzoo.tools import tool_versions

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


def add_version_columns(
    cells: pd.DataFrame, measured: "Iterable[tuple[str, Mapping[str, str], Sidecar]]"
) -> pd.DataFrame:
    """Return the table of cells with VERSIONS: torch, GPU driver and profilers; empty without the program.

    If the tools of a cell ran with different versions, the column names all versions, each with its tools.

    measured: tool, cell and sidecar of each input of the tables.
    """
    found: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
    for tool, cell, facts in measured:
        found.setdefault(tuple(cell[key] for key in CELL), {})[tool] = tool_versions.versions_of(facts)
    rows = [
        tool_versions.merge_versions(found.get(cell, {})) for cell in cells[CELL].itertuples(index=False, name=None)
    ]
    texts = {name: [row.get(name.removesuffix(VERSION), "") for row in rows] for name in VERSIONS}
    return cells.assign(**{name: pd.array(column, dtype="str") for name, column in texts.items()})
