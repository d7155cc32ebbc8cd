"""Counts the processes that share a cell's training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def process_count(cell: "CellSettings") -> int:
    """Number of processes that share the training, one per GPU of each node."""
    return int(cell["gpus"] * cell["nodes"])


def batch_count(cell: "CellSettings") -> int:
    """Number of batches that the processes compute on in a step: one for each, or one for all with tensor parallelism.

    >>> batch_count({"gpus": 4, "nodes": 1}), batch_count({"gpus": 4, "nodes": 1, "parallel": "tensor"})
    (4, 1)
    """
    return 1 if cell.get("parallel") == "tensor" else process_count(cell)
