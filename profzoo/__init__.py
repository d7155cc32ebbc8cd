"""Profiles a zoo of PyTorch models: what the workflow's rules and scripts call, and `load` for notebooks."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.results import Results

__all__ = ["load"]


def load(folder: "str | Path" = "results") -> "Results":
    """Return what a folder of results holds: its tables as frames, its cells, verdicts, comparison and trials.

    Files are read when they are asked for.

    Raises:
        DataError: there is no such folder.
    """
    # By name: every part of the package imports this module, and is made of what it imports; a measured program must
    # not be made of the tables.
    found: Results = importlib.import_module("profzoo.results").Results(folder)
    return found
