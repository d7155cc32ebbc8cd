"""Makes the tables across cells of layers, and of how much of each cell's time has an owning layer."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_tables, layers, owner_coverage
from profzoo.tables.schemas import CELL


def main(paths: Sequence[str], coverage: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables of layers and of coverage; write `layers` and `owners`."""
    write_csv(concatenate_cells(paths, layers.TABLE), outputs["layers"])
    write_csv(concatenate_cells(coverage, owner_coverage.TABLE), outputs["owners"])


def concatenate_cells(paths: Sequence[str], table: Table) -> pd.DataFrame:
    """Return the rows of several cells' tables, each with its cell; table: their declaration."""
    frames = [rows.assign(**cell) for cell, rows in cell_tables.read(paths, table)]
    some = [name for name in table.optional if any(name in frame for frame in frames)]
    columns = [*CELL, *table.columns, *some]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)
