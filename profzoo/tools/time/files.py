"""Names the files that timing a cell leaves under results/."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import TimeSettings


def exported_files(own: "TimeSettings") -> Sequence[str]:
    """The steps, and what a step holds in memory."""
    return ["{phase}.time.csv", "{phase}.memory.csv"]


def name_parts(own: "TimeSettings") -> Sequence[str]:
    """Names between dots."""
    return ["time", "memory", "memory-remedies", "numerics"]
