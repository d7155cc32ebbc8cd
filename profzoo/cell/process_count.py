"""Counts the processes that share a cell's training, and the batches of a step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def process_count(cell: "CellSettings") -> int:
    """Number of processes that share the training, one per GPU of each node."""
    return int(cell["gpus"] * cell["nodes"])


def share_count(cell: "CellSettings") -> int:
    """Number of shares that the data are split into: one for each process, or one for all of a split network.

    >>> share_count({"gpus": 4, "nodes": 1}), share_count({"gpus": 4, "nodes": 1, "parallel": "tensor"})
    (4, 1)
    """
    return 1 if cell.get("parallel") in ("tensor", "pipeline") else process_count(cell)


def batch_count(cell: "CellSettings") -> int:
    """Number of batches that all processes together compute on in a step.

    >>> batch_count({"gpus": 4, "nodes": 1, "accumulate": 3})
    12
    """
    return share_count(cell) * cell.get("accumulate", 1)


def count_samples(facts: Mapping[str, Any]) -> int:
    """Return the samples of a step of all processes, by the facts of one of them; 1 if unknown.

    >>> count_samples({"batch": 8, "ran_with": {"gpus": 2, "accumulate": 4}}), count_samples({"batch": None})
    (64, 1)
    """
    ran_with: Any = {"gpus": 1, "nodes": 1, **facts.get("ran_with", {})}
    return int((facts.get("batch") or 1) * batch_count(ran_with))
