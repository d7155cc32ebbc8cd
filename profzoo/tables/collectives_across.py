"""Makes the tables across cells on several GPUs of collective operations, and of which process comes late to them."""

from collections.abc import Mapping, Sequence

from profzoo.io.scripts import write_csv
from profzoo.tables.layers_across import concatenate_cells
from profzoo.tables.schemas import CELL
from profzoo.tools.torch import collective_tables, rank_skew

TABLES = {"collectives": collective_tables, "skew": rank_skew}


def main(paths: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables, and write those across cells; paths: of each cell's table, by the table's name."""
    for name, module in TABLES.items():
        joined = concatenate_cells(paths[name], module.TABLE)
        write_csv(joined[[*CELL, *module.COLUMNS]], outputs[name])
