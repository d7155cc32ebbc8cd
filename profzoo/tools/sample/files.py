"""Names the files that sampling a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def provided_files(own: Mapping[str, Any]) -> Mapping[str, str]:
    """The samples of the window."""
    return {"samples": "{phase}.sample.csv"}


def name_parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["sample", "sample-raw", "sample-steps"]
