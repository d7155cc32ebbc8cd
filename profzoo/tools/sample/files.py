"""Names the files that sampling a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def name_parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["sample", "sample-raw", "sample-steps"]
