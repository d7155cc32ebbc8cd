"""Names the files that sampling a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SampleSettings


def provided_files(own: "SampleSettings") -> Mapping[str, str]:
    """Return the table of samples."""
    return {"samples": "{phase}.sample.csv"}


def name_parts(own: "SampleSettings") -> Sequence[str]:
    """Return the parts of the sampler's file names between dots."""
    return ["sample", "sample-raw", "sample-steps"]
