"""Makes the tables across cells of predicted gains and of host time."""

from collections.abc import Mapping, Sequence

from profzoo.io.scripts import write_csv
from profzoo.tables.layers_across import concatenate_cells
from profzoo.what_if.tables import GAINS, TAX


def main(changes: Sequence[str], host: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables of both; write `changes` and `host`."""
    write_csv(concatenate_cells(changes, GAINS), outputs["changes"])
    write_csv(concatenate_cells(host, TAX), outputs["host"])
