"""Names the files that sampling a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def exported(own: Mapping[str, Any]) -> Sequence[str]:
    """The samples of the window."""
    return ["{phase}.sample.csv"]


def tabulated(own: Mapping[str, Any]) -> Mapping[str, str]:
    """These with their sidecar."""
    return {"sample": "{phase}.sample.csv", "sample_sidecar": "{phase}.sample.csv.json"}


def kept(own: Mapping[str, Any]) -> Sequence[str]:
    """Both."""
    return [*tabulated(own).values()]


def parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["sample", "sample-raw", "sample-steps"]
