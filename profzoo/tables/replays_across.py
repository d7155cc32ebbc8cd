"""Makes the tables across the zoo of what changes would be worth, and of what the CPU's time went to."""

from collections.abc import Mapping, Sequence

from profzoo.io.scripts import write_csv
from profzoo.tables.layers_across import concatenate_cells
from profzoo.what_if.tables import GAINS, TAX


def main(changes: Sequence[str], host: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables of both, write `changes` and `host`, in the order of the cells' own."""
    write_csv(concatenate_cells(changes, GAINS), outputs["changes"])
    write_csv(concatenate_cells(host, TAX), outputs["host"])
