"""Counts the processes that share a cell's training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


if TYPE_CHECKING:
    pass


def process_count(cell: "CellSettings") -> int:
    """Number of processes that share the training, one per GPU of each node."""
    return int(cell["gpus"] * cell["nodes"])
