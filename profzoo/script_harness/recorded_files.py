"""Has a program record itself where another process asks for it, and hands over to jobs what programs recorded."""

import argparse
import importlib
import json
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profzoo.errors import CollectError, first_error_line
from profzoo.records import atomic_writes
from profzoo.script_harness import task as tasks

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

# Beside the program: everything that profzoo makes there, and in it a folder for each recording.
FOLDER, RECORDED = Path("profzoo-results"), "recorded"
# The configuration that makes tables of a recording, and its facts.
CONFIGURED, FACTS = "config.yaml", "facts.json"
# Files by the names that jobs ask for them by (`Task.files`).
NAMES = {"steps": "steps.csv", "memory": "memory.csv", "trace": "trace.json.gz", "operators": "operators.csv"}
OF_TRACE = ("trace", "operators")
# Facts that only the baseline has: the trace is of other steps, and a job that traces looks at neither.
OF_BASELINE = ("memory", "roof")


def place(name: str, folder: Path = FOLDER) -> Path:
    """Folder of the recording with this name."""
    return folder / RECORDED / name


def configuration_lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    """Return the lines of a configuration that make tables and a page of a recording."""
    timed = facts.get("baseline", facts)
    where = f"{RECORDED}/{name}"
    own = [f"command: {RECORDED} {where}", f"inputs: [{where}]", f"phase: {find_phase(facts)}"]
    own.append(f"window: {timed['steps']}")
    # The program has the GPU, and a job that hands over needs none.
    return [
        "# Of a recording by profzoo.record. `command` and `inputs` are from the folder that snakemake runs in.",
        f"models: [{name}]",
        # A trace by torch.profiler has the launches that nsys would have.
        "tool: [nsys, torch]" if facts["device_type"] == "cuda" else "tool: [torch]",
        "device: cpu",
        "settings:",
        f"  {name}: {{{', '.join(own)}}}",
    ]


def find_phase(facts: Mapping[str, Any]) -> str:
    """Return the phase of a loop by what its steps have: `train` or `inference`."""
    return "train" if {"optimizer steps", "backward passes"} & facts["script"]["per_step"].keys() else "inference"


def find_folder(command: str) -> Path | None:
    """Return the folder of the recording that a command stands for; None for a command that runs a program.

    >>> find_folder("recorded recorded/mine"), find_folder("python recorded/mine")
    (PosixPath('recorded/mine'), None)
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return Path(words[1]) if len(words) == 2 and words[0] == RECORDED else None


def hand_over(folder: Path, cell: "CellSettings", options: argparse.Namespace, changed: Mapping[str, Any]) -> Any:
    """Copy the files that a job asks for out of a recording, and return the facts.

    changed: settings of the cell that are to be applied to the program.

    Raises:
        CollectError: the recording does not have what the job asks for.
    """
    where = f"{cell['model']} {cell['phase']}"
    again = "it was recorded within a program, by profzoo.record; `profzoo advise -- COMMAND` profiles {}"
    if changed:
        words = ", ".join(f"{key}={value}" for key, value in changed.items())
        raise CollectError(f"{where} cannot be run with {words}: {again.format('a command that can be run again')}")
    asked = {name: Path(path) for name in NAMES if (path := getattr(options, name, None))}
    if not asked:
        raise CollectError(f"{where} has no report of this tool: {again.format('a command that it can run')}")
    if not (folder / FACTS).exists():
        raise CollectError(f"{where}: there is no recording in {folder}: record it again, or correct the command")
    facts = json.loads((folder / FACTS).read_text())
    if "trace" in asked and "baseline" not in facts:
        raise CollectError(f"{where} has no trace, as its loop ended after {facts['steps']} steps that were timed")
    for name, path in asked.items():
        shutil.copyfile(folder / NAMES[name], path)
    if "trace" in asked:
        return {key: value for key, value in facts.items() if key not in ("baseline", *OF_BASELINE)}
    timed = {key: value for key, value in facts.pop("baseline", {}).items() if key != "loss"}
    return facts | timed


# The request of another process, and the answer of the one that records itself.

# Variable with the folder for recordings of a process that may be asked for one, and the signal that asks, which few
# programs use (startup/sitecustomize.py has these too, as it imports nothing of profzoo).
ARMED, ASKING = "PROFZOO_ATTACH", signal.SIGRTMIN + 7
# What a process is asked for, and its answer, by its number, in its folder for recordings.
REQUEST, ANSWER = "attach-{}.json", "attach-{}.answer.json"
RECORDING, DONE, REFUSED = "recording", "done", "refused"
# The recording that was asked for last.
_begun: list[Any] = []


def answer(folder: str, has_torch: bool) -> None:
    """Begin the recording that this process is asked for, or end the one that it was asked for before.

    has_torch: whether the program has imported torch.
    """
    if any(not one.done for one in _begun):
        _begun[-1].ask_to_finish()
        return
    try:
        if not has_torch:
            raise CollectError("it has not imported torch")
        _begin(Path(folder))
    except Exception as error:
        # The program goes on, whatever it is asked for.
        _note(Path(folder), REFUSED, first_error_line(error))


def _begin(folder: Path) -> None:
    asked = tasks.read_task(str(folder / REQUEST.format(os.getpid())))
    tasks.find_packages(asked)
    # By name, as this takes the packages.
    record = importlib.import_module("profzoo.script_harness.recording").Recording(asked, folder)
    record.ended = lambda: _note(folder, DONE if record.kept else REFUSED, record.lacks)
    record.begin()
    _begun[:] = [record]
    _note(folder, RECORDING, "")


def _note(folder: Path, state: str, why: str) -> None:
    text = json.dumps({"state": state, "why": why})
    atomic_writes.write_synced(folder / ANSWER.format(os.getpid()), text)
