"""Names the files that sampling a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SampleSettings


def provided_files(own: "SampleSettings") -> Mapping[str, str]:
    """The samples of the window."""
    return {"samples": "{phase}.sample.csv"}


def name_parts(own: "SampleSettings") -> Sequence[str]:
    """Names between dots."""
    return ["sample", "sample-raw", "sample-steps"]
