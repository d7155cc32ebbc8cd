"""Makes the tables across cells on several GPUs of collective operations, and of which process comes late to them."""

from collections.abc import Mapping, Sequence

from profzoo.io.scripts import write_csv
from profzoo.tables.layers_across import concatenate_cells
from profzoo.tools.torch import collective_tables, rank_skew

TABLES = {"collectives": collective_tables.TABLE, "skew": rank_skew.TABLE}


def main(paths: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables, and write those across cells; paths: of each cell's table, by the table's name."""
    for name, table in TABLES.items():
        write_csv(concatenate_cells(paths[name], table), outputs[name])
