"""Reads the sidecars of measured files, with their type."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from profzoo.io import sidecars

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


def read_facts(path: str | Path, needs: sidecars.Needs = sidecars.NOTHING) -> "Sidecar":
    """Read a sidecar and check its declared keys; needs: which keys are required, and what they hold.

    Raises:
        DataError: the file cannot be read, is no JSON object, or lacks a required key.
    """
    return cast("Sidecar", sidecars.read_sidecar(path, needs))
