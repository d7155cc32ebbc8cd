"""Names the files that timing a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def exported_files(own: Mapping[str, Any]) -> Sequence[str]:
    """The steps, and what a step holds in memory."""
    return ["{phase}.time.csv", "{phase}.memory.csv"]


def name_parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["time", "memory"]
