"""Over how many processes a cell's training is spread."""

from collections.abc import Mapping
from typing import Any


def process_count(cell: Mapping[str, Any]) -> int:
    """Processes that share the training, one for each GPU of each node."""
    return int(cell["gpus"] * cell["nodes"])
