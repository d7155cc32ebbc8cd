"""Runs a script's command with profzoo attached to its processes, and gathers what they measured."""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profzoo.cell import schema, settings
from profzoo.errors import CollectError, ConfigError
from profzoo.machine import program_variables
from profzoo.records.import_graph import PROJECT
from profzoo.script_harness import task as tasks

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

STARTUP = Path(__file__).with_name("startup")
TASK, PATHS, VISIBLE = "PROFZOO_SCRIPT", "PYTHONPATH", "CUDA_VISIBLE_DEVICES"
# Packages that measuring takes and a script's own environment may lack.
LENT = ("nvtx",)
# Variables that keep Python from finding what a script imports.
ISOLATING = ("PYTHONSAFEPATH", "PYTHONNOUSERSITE")
# Settings that say where and how long a script is measured, which the launcher and the session see to.
NOT_APPLIED = ("device", "warmup", "window")


class FewStepsError(CollectError):
    """A command that ended by itself before its window did."""

    def __init__(self, why: str, steps: int) -> None:
        """steps: how many it had."""
        super().__init__(why)
        self.steps = steps


def run_script(cell: "CellSettings", options: argparse.Namespace) -> dict[str, Any]:
    """Run a cell's command to the end of its window and return its facts.

    options: besides files, `printed` may name an open file, which takes what the command prints.

    Raises:
        ConfigError: the command cannot be started.
        CollectError: it ended before its window did; the message says what was seen of it.
    """
    words = split_command(cell["command"], cell["model"], cell.get("folder", "."))
    with tempfile.TemporaryDirectory(prefix="profzoo-script-") as name:
        folder = Path(name)
        task = tasks.Task(cell, setting_defaults(), folder, _files(options), options.at_least_s, _lent_packages())
        task.write(folder / "task.json")
        own = environment(program_variables.command_variables(words), folder / "task.json", cell["device"])
        # With the descriptors of the job: locks on GPUs are held, and shifts are given, by what is inherited.
        printed = getattr(options, "printed", None)
        start = cell.get("folder", ".")
        code = subprocess.run(
            words, cwd=start, env=own, close_fds=False, stdout=printed, stderr=subprocess.STDOUT if printed else None
        ).returncode
        return gather_facts(folder, cell, code)


def split_command(command: str, model: str, folder: str = ".") -> list[str]:
    """Split a command into words, as a shell does; its program must be on PATH, or be named from the folder.

    Raises:
        ConfigError: it is not a command, or its program is not there.
    """
    where = f"settings.{model}.command = {command!r}"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{where} cannot be split into words: {error}") from error
    if not words:
        raise ConfigError(f"{where} is empty: give a command such as 'python train.py'")
    found = shutil.which(str(Path(folder, words[0])) if os.sep in words[0] else words[0])
    if "=" in words[0] and not found:
        raise ConfigError(f"{where} begins with a variable: write `env {words[0]} ...`, as no shell runs it")
    if not found:
        raise ConfigError(
            f"{where}: {words[0]} is not on PATH, nor a file that can be run from {Path(folder).resolve()}"
        )
    return words


def environment(given: Mapping[str, str], task: Path, device: str) -> dict[str, str]:
    """Return the environment of the command, in which Python attaches profzoo when it starts."""
    # Python puts the script's own folder on the path, which the workflow's jobs do without.
    given = {name: value for name, value in given.items() if name not in ISOLATING}
    # Not the workflow's folder: `models`, `config` and `tests` there are names that scripts use.
    others = [path for path in given.get(PATHS, "").split(os.pathsep) if path and Path(path).resolve() != PROJECT]
    paths = [str(STARTUP), *others]
    hidden = {VISIBLE: ""} if device == "cpu" else {}
    return {**given, **hidden, TASK: str(task), PATHS: os.pathsep.join(paths)}


def setting_defaults() -> dict[str, Any]:
    """Return the default of each setting that can be applied to a script, which leaves it as it is."""
    known = schema.cell_properties()
    return {key: known[key]["default"] for key in settings.APPLICABLE if key not in NOT_APPLIED}


def gather_facts(folder: Path, cell: "CellSettings", code: int) -> dict[str, Any]:
    """Gather what the processes of a command left in the folder; code: how the command ended.

    Raises:
        CollectError: none of them came to the end of its window.
    """
    if not (folder / tasks.FACTS).exists():
        errors = [path.read_text() for path in sorted(folder.glob(tasks.ERROR.format("*")))]
        notes = _notes(folder, tasks.PROGRESS)
        why = f"{cell['model']} {cell['phase']}: {explain_end(notes, errors, cell, code)}"
        steps = max((note["steps"] for note in notes), default=0)
        raise FewStepsError(why, steps) if steps and not code else CollectError(why)
    facts: dict[str, Any] = json.loads((folder / tasks.FACTS).read_text())
    if code and cell["finish"]:
        raise CollectError(f"{cell['model']} {cell['phase']}: the command ended with exit code {code} after its window")
    ranks = sorted(_notes(folder, tasks.RANK), key=lambda one: (one["rank"], one["pid"]))
    return facts | ({"ranks": ranks} if len(ranks) > 1 else {})


def explain_end(notes: Sequence[Mapping[str, Any]], errors: Sequence[str], cell: "CellSettings", code: int) -> str:
    """Explain in one line why a command ended before its window did, and what to do.

    notes: what its processes saw; errors: what ended some of them; code: the exit code of the command.
    """
    ended = f"ended with exit code {code}" if code else "ended"
    begun = any(note["begun"] for note in notes)
    if errors and code:
        step = max((note["steps"] for note in notes), default=0) + 1
        return f"the script failed {f'in step {step}' if begun else 'before its first step'} with {errors[0]}"
    if not notes:
        return (
            f"the command {ended} before any of its Python processes imported torch: profzoo follows scripts that "
            "train or run networks of torch, and cannot follow `python -I` or `python -E`"
        )
    most = max(notes, key=lambda note: (note["steps"], note["optimizer_steps"], note["calls"]))
    steps, warmup = most["steps"], max(cell["warmup"], 1)
    needed = warmup + cell["steps"] - cell["warmup"]
    seen = _describe_seen(most)
    if code and not begun:
        return f"the command {ended} before its first step"
    if code:
        return f"the command {ended} in step {steps + 1} of {needed}, {seen}"
    if not steps:
        return (
            f"no step was found until the command ended, {seen}: say what ends a step by `step`, as module:NAME, "
            "range:NAME or dataloader"
        )
    if steps >= needed:
        # Compared windows last for some seconds, and what a step holds in memory takes a step more.
        return f"the command ended after {steps} steps, before its window was over: have the script run longer"
    return (
        f"the command ended after {steps} steps, and warm-up and window take {warmup} + {needed - warmup}: lower "
        "warmup or window, or have the script run longer"
    )


def _describe_seen(note: Mapping[str, Any]) -> str:
    networks = ", ".join(note["networks"]) or "no network"
    made = f"{note['optimizers']} optimizer{'' if note['optimizers'] == 1 else 's'}"
    return f"after {note['optimizer_steps']} steps of {made} and {note['calls']} calls of {networks}"


def _notes(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(name.format("*")))]


def _files(options: argparse.Namespace) -> dict[str, Path]:
    """Absolute paths of the files that the command line asks for: the script may change its working folder."""
    named = {name: getattr(options, name, None) for name in ("steps", "memory", "trace", "operators", "more")}
    return {name: path.absolute() for name, path in named.items() if path}


def _lent_packages() -> dict[str, str]:
    found = {name: importlib.util.find_spec(name) for name in LENT}
    return {
        name: spec.submodule_search_locations[0]
        for name, spec in found.items()
        if spec and spec.submodule_search_locations
    }
