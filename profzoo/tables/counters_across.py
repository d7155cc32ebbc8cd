"""Makes the tables across cells of ncu's counters: occupancy, memory chart, pipe utilisation and warp states."""

from collections.abc import Mapping, Sequence

from profzoo.io.scripts import write_csv
from profzoo.tables.cell_counters import TABLES
from profzoo.tables.layers_across import concatenate_cells


def main(paths: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables, and write those across cells; paths: of each cell's table, by the table's name."""
    for name, table in TABLES.items():
        write_csv(concatenate_cells(paths[name], table), outputs[name])
