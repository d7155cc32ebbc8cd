"""Profiles a zoo of PyTorch models: what the workflow's rules and scripts call, and `load` for notebooks."""

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.errors import shorten_interrupts

if TYPE_CHECKING:
    from profzoo.results import Results

__all__ = ["load"]

# In the processes of jobs, whose run tells that it was ended (machine/job_child.py sets the variable).
if "PROFZOO_OWNER" in os.environ:
    shorten_interrupts("")


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
