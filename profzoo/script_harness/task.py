"""What a script's process is asked to measure, and the notes that it leaves for the process that started it."""

import importlib.util
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.harness import observed_files

# Names the file that says what to measure, in the processes that are measured (startup/sitecustomize.py has it too).
VARIABLE = "PROFZOO_SCRIPT"
# Notes in the folder of a task: of the process that represents the cell, of each process that measured, and of each
# that ended before its window did.
FACTS, RANK, PROGRESS = "facts.json", "rank-{}.json", "progress-{}.json"
# Of each process: what ended it, an error or a signal (startup/sitecustomize.py has these too, as it imports nothing of
# profzoo), and the number of the step that it is in.
ERROR, FATAL, STEP = "error-{}.txt", "fatal-{}.txt", "step-{}"
# How that number is written.
NUMBER = struct.Struct("q")
# Made by the process that represents the cell.
CLAIM = "claim"
# What that process writes into the pipe `marks`, whose reader has the clock, when its window begins and ends.
BEGUN, ENDED = b"(", b")"


@dataclass(frozen=True)
class Task:
    """What to measure.

    cell: resolved settings. defaults: of each setting that can be applied, the value that leaves a script as it is.
    folder: for notes. files: what to write, by name: `steps`, `memory`, `trace`, `operators`, `more`, `marks`.
    at_least_s: how long the window lasts at the least.
    packages: folders of packages that the script's own environment may lack, by name. nudge: by what part of
    themselves weights are changed before the first call of their network, to learn how far rounding goes.
    """

    cell: Mapping[str, Any]
    defaults: Mapping[str, Any]
    folder: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    at_least_s: float = 0.0
    packages: Mapping[str, str] = field(default_factory=dict)
    nudge: float = 0.0

    @property
    def times_first(self) -> bool:
        """Whether steps are timed before a profiler starts in the same process."""
        return bool(self.cell.get("profiler", {}).get("baseline"))

    @property
    def kinds_of_ranges(self) -> tuple[bool, bool]:
        """Whether ranges go to torch.profiler, and whether those of modules do."""
        traces = "trace" in self.files
        return traces, traces and bool(self.cell["profiler"]["modules"])

    def write(self, path: Path) -> None:
        """Write the task to a JSON file."""
        path.write_text(json.dumps(vars(self), default=os.fspath))


def read_task(path: str) -> Task:
    """Read a task that `Task.write` wrote."""
    given = json.loads(Path(path).read_text())
    files = {name: Path(file) for name, file in given.pop("files").items()}
    return Task(folder=Path(given.pop("folder")), files=files, **given)


def find_packages(task: Task) -> None:
    """Import packages that the script's own environment lacks from where the workflow has them."""
    for name, folder in task.packages.items():
        if importlib.util.find_spec(name) is None:
            sys.modules["sitecustomize"].load_package(name, Path(folder))


def claim_cell(folder: Path) -> bool:
    """Whether this process represents the cell: the first one that asks does."""
    try:
        (folder / CLAIM).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def write_note(task: Task, stages: Any, facts: Mapping[str, Any], represents: bool) -> None:
    """Write what a process measured: its own line among the ranks, and the cell's facts if it represents the cell."""
    observed_files.note_files_in_use()
    own = {
        "rank": stages.rank,
        "pid": os.getpid(),
        "host": platform.node(),
        "step_ns": stages.recorder.step_ns,
        "peak_memory_bytes": stages.peak_memory_bytes,
        "device_uuid": facts["device_uuid"],
    }
    (task.folder / RANK.format(os.getpid())).write_text(json.dumps(own))
    if represents:
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        whole = {**facts, **stages.facts(), "peak_rss_bytes": resident}
        (task.folder / FACTS).write_text(json.dumps(whole))
