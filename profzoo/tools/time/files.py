"""Names the files that timing a cell leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any


def exported(own: Mapping[str, Any]) -> Sequence[str]:
    """The steps, and what a step holds in memory."""
    return ["{phase}.time.csv", "{phase}.memory.csv"]


def tabulated(own: Mapping[str, Any]) -> Mapping[str, str]:
    """The steps with their sidecar."""
    return {"time": "{phase}.time.csv", "time_sidecar": "{phase}.time.csv.json"}


def kept(own: Mapping[str, Any]) -> Sequence[str]:
    """Both."""
    return [*tabulated(own).values()]


def parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots."""
    return ["time", "memory"]
