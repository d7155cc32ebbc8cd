"""Over how many processes a cell's training is spread."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def process_count(cell: "CellSettings") -> int:
    """Processes that share the training, one for each GPU of each node."""
    return int(cell["gpus"] * cell["nodes"])
