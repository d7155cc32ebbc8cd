"""Profiles a zoo of PyTorch models: what the workflow's rules and scripts call, and what notebooks do."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profzoo.errors import shorten_interrupts

if TYPE_CHECKING:
    from profzoo.results import Results
    from profzoo.script_harness.recording import Recording

__all__ = ["load", "record", "record_step"]

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


def record(name: str, steps: int = 10, **options: Any) -> "Recording":
    """Record steps of a loop in this process: `with profzoo.record("mine") as record:` around it.

    steps: that are timed, and as many that are traced. options: `warmup`, steps before; `step`, what ends one, as of
    a script; `folder`, beside the program.

    Raises:
        ConfigError: a value cannot be used.
    """
    # By name, as this takes torch.
    found: Recording = importlib.import_module("profzoo.script_harness.recording").make_recording(
        name, steps, **options
    )
    return found


def record_step(function: Callable[[], Any], name: str, steps: int = 10, **options: Any) -> "Recording":
    """Call a function, which runs one step, as often as it takes to record it; options: as for `record`."""
    made = importlib.import_module("profzoo.script_harness.recording").record_step
    found: Recording = made(function, name, steps, **options)
    return found
