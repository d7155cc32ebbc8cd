"""Runs a script's command with profzoo attached to its processes, and gathers what they measured."""

import argparse
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from profzoo.cell import registry, schema, settings
from profzoo.errors import CollectError, ConfigError
from profzoo.machine import process_tree, program_variables
from profzoo.records.import_graph import PROJECT
from profzoo.script_harness import recorded_files
from profzoo.script_harness import task as tasks

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

STARTUP = Path(__file__).with_name("startup")
TASK, PATHS, VISIBLE = tasks.VARIABLE, "PYTHONPATH", "CUDA_VISIBLE_DEVICES"
# Packages that measuring takes and a script's own environment may lack.
LENT = ("nvtx",)
# Variables that keep Python from finding what a script imports.
ISOLATING = ("PYTHONSAFEPATH", "PYTHONNOUSERSITE")
# Settings that say where and how long a script is measured, which the launcher and the session see to.
NOT_APPLIED = ("device", "warmup", "window")
# Steps of a recording until it is known what a step is.
LEAST_WARMUP = 2
# Beginning of the line about a script that was told to end, and words about one that left no error: what it printed
# says more (profzoo/collect/failures.py).
STOPPED, UNEXPLAINED = "the script was stopped", "without an error of Python"
# How vLLM is told to spawn its engine.
SPAWN = "VLLM_WORKER_MULTIPROCESSING_METHOD=spawn"
# A command that is told to end gets as long; its supervisor kills it soon after.
STOPPED_S = 1.0
# How often it is looked whether what is measured of a command has ended, and how long the rest of it may take to end.
LOOK_S, LEFT_S = 0.5, 5.0
# Files that are not a program's own: of Python, of installed packages, of torch.compile, and of profzoo.
OTHERS = re.compile(
    rf"^<|/(site|dist)-packages/|/lib(64)?/python3[.\d]*/|torchinductor_|^{re.escape(str(STARTUP.parents[1]))}/"
)


class FewStepsError(CollectError):
    """A command that ended by itself before its window did."""

    def __init__(self, why: str, steps: int) -> None:
        """steps: how many it had."""
        super().__init__(why)
        self.steps = steps


def run_script(cell: "CellSettings", options: argparse.Namespace) -> dict[str, Any]:
    """Run a cell's command to the end of its window and return its facts.

    options: besides files, `printed` may name an open file, which takes what the command prints; `variables` further
    ones of its environment; and `nudge` is as of a task.

    Raises:
        ConfigError: the command cannot be started.
        CollectError: it ended before its window did; the message says what was seen of it.
    """
    if folder := recorded_files.find_folder(cell["command"]):
        defaults = setting_defaults()
        changed = {key: cell[key] for key, default in defaults.items() if cell.get(key, default) != default}  # type: ignore[literal-required]
        return recorded_files.hand_over(folder, cell, options, changed)
    words = split_command(cell["command"], f"settings.{cell['model']}.command =", cell.get("folder", "."))
    with tempfile.TemporaryDirectory(prefix="profzoo-script-") as name:
        folder = Path(name)
        nudge, more = getattr(options, "nudge", 0.0), getattr(options, "variables", {})
        task = tasks.Task(
            cell, setting_defaults(), folder, _files(options), options.at_least_s, _lent_packages(), nudge
        )
        task.write(folder / "task.json")
        given = {**program_variables.command_variables(words), **more}
        own = environment(given, folder / "task.json", cell["device"])
        start, printed = Path(cell.get("folder", ".")), getattr(options, "printed", None)
        return gather_facts(folder, cell, run_command(words, own, start, printed))


def run_command(
    words: Sequence[str], variables: Mapping[str, str], folder: Path, printed: IO[bytes] | None
) -> int | None:
    """Run a command and return its exit code; None if this process is told to end meanwhile, which ends the command.

    folder: in which it starts. printed: takes what it prints, if given.
    """
    errors = subprocess.STDOUT if printed else None
    # With the descriptors of the job: locks on GPUs are held, and shifts are given, by what is inherited.
    with subprocess.Popen(words, cwd=folder, env=variables, close_fds=False, stdout=printed, stderr=errors) as process:
        told = signal.getsignal(signal.SIGTERM)
        in_main = threading.current_thread() is threading.main_thread()
        try:
            if in_main and told == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, _stop)
            return _wait(process, Path(variables[TASK]))
        except _Stopped:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOPPED_S)
            return None
        finally:
            if process.poll() is None:
                process.kill()
            if in_main and told is not None:
                signal.signal(signal.SIGTERM, told)


def _wait(process: subprocess.Popen[Any], task: Path) -> int:
    """Wait for a command to end; one that goes on although what was measured of it has ended is ended."""
    ended = threading.Event()
    if not tasks.read_task(str(task)).cell["finish"]:
        threading.Thread(target=_end_left, args=(process, task.parent, ended), daemon=True).start()
    try:
        return process.wait()
    finally:
        ended.set()


def _end_left(process: subprocess.Popen[Any], folder: Path, ended: threading.Event) -> None:
    """End a command whose measured processes have ended, such as a server that waits for its engine's answers."""
    while not ended.wait(LOOK_S):
        measured = [note["pid"] for note in _notes(folder, tasks.RANK)] if (folder / tasks.FACTS).exists() else []
        if not measured or any(map(process_tree.is_alive, measured)) or ended.wait(LEFT_S):
            continue
        left = [process.pid, *process_tree.list_descendants(process.pid)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one, number)
            ended.wait(STOPPED_S)
            left = list(filter(process_tree.is_alive, left))
        return


class _Stopped(BaseException):
    """The process is told to end."""


def _stop(number: int, frame: object) -> None:
    # Those that come after the first one would end what is done about it.
    signal.signal(number, signal.SIG_IGN)
    raise _Stopped


def split_command(command: str, what: str, folder: str = ".") -> list[str]:
    """Split a command into words, as a shell does; its program must be on PATH, or be named from the folder.

    what: words before the command in messages.

    Raises:
        ConfigError: it is not a command, or its program is not there.
    """
    where = f"{what} {command!r}"
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


def plan_recording(name: str, steps: int, warmup: int = 3, step: str = "auto") -> tasks.Task:
    """Return what a program is to record of itself: steps that are timed, and as many that are traced.

    warmup: steps before. step: what ends a step, as of a script.

    Raises:
        ConfigError: a value cannot be used.
    """
    if (taken := registry.is_taken(name)) or not schema.is_name(name, "model"):
        form = "the zoo has a model or a group of this name" if taken else schema.describe_form("model")
        raise ConfigError(f"{name!r} cannot be the name of a recording: {form}")
    if warmup < LEAST_WARMUP:
        raise ConfigError(f"warmup={warmup}: a recording takes at least {LEAST_WARMUP} steps of warm-up")
    tool = next(name for name, part in schema.tool_schemas().items() if "inside" in part)
    config = schema.fill_defaults({}, schema.load_schema())
    own = {"command": recorded_files.RECORDED, "warmup": warmup, "window": steps, "step": step, "finish": True}
    config[tool]["baseline"], config["settings"] = steps, {name: own}
    cell = settings.resolve_cell(name, "train", tool, config)
    return tasks.Task(cell, setting_defaults(), Path(), packages=_lent_packages())


def gather_facts(folder: Path, cell: "CellSettings", code: int | None) -> dict[str, Any]:
    """Gather what the processes of a command left in the folder; code: how the command ended, None if it was told to.

    Raises:
        CollectError: none of them came to the end of its window.
    """
    if code is None or not (folder / tasks.FACTS).exists():
        notes, end = _notes(folder, tasks.PROGRESS), read_end(folder, cell.get("folder", "."))
        why = f"{cell['model']} {cell['phase']}: {explain_end(notes, end, cell, code)}"
        steps = max((note["steps"] for note in notes), default=0)
        raise FewStepsError(why, steps) if steps and code == 0 else CollectError(why)
    facts: dict[str, Any] = json.loads((folder / tasks.FACTS).read_text())
    if code and cell["finish"]:
        raise CollectError(f"{cell['model']} {cell['phase']}: the command ended with exit code {code} after its window")
    ranks = sorted(_notes(folder, tasks.RANK), key=lambda one: (one["rank"], one["pid"]))
    return facts | ({"ranks": ranks} if len(ranks) > 1 else {})


@dataclass(frozen=True)
class End:
    """What the processes of a command left on how they ended.

    step: number of the step that the furthest one was in, 0 before its first one; None if none imported torch.
    error: what Python says of the error that came first. place: line of the script, as ` (FILE:LINE)`.
    """

    step: int | None
    error: str = ""
    place: str = ""


def read_end(folder: Path, start: str = ".") -> End:
    """Read from the notes in the folder of a task how the processes of its command ended; start: where it began."""
    steps = {path.name.rpartition("-")[2]: path for path in folder.glob(tasks.STEP.format("*"))}
    reached = {own: tasks.NUMBER.unpack(path.read_bytes())[0] for own, path in steps.items()}
    step = max(reached.values(), default=None)
    found = [
        path for name in (tasks.ERROR, tasks.FATAL) for path in folder.glob(name.format("*")) if path.stat().st_size
    ]
    # Of the processes that came as far, the others end because of the first one.
    found.sort(key=lambda path: (-reached.get(re.split("[-.]", path.name)[1], 0), path.stat().st_mtime_ns))
    if not found:
        return End(step)
    text = found[0].read_text(errors="replace")
    error = text.partition("\n")[0] if found[0].match(tasks.ERROR.format("*")) else ""
    return End(step, error, find_own_frame(text, start))


def find_own_frame(text: str, start: str = ".") -> str:
    """Return the innermost line of a program's own in the frames that faulthandler wrote, as ` (FILE:LINE)`.

    start: the folder in which the program started, from which files are named.

    >>> find_own_frame('  File "/usr/lib/python3.12/ast.py", line 9 in parse\\n  File "train.py", line 3 in <module>')
    ' (train.py:3)'
    """
    # It begins with the thread that the signal came to, and the main thread comes last.
    first, *others = re.split(r"^Thread 0x", text, flags=re.MULTILINE)
    found = [re.findall(r'^  File "(.*)", line (\d+) in ', part, re.MULTILINE) for part in (first, *reversed(others))]
    frames = [frame for part in found for frame in part]
    own = [frame for frame in frames if not OTHERS.search(frame[0])] or frames
    return " ({}:{})".format(own[0][0].removeprefix(f"{Path(start).resolve()}{os.sep}"), own[0][1]) if own else ""


def explain_end(notes: Sequence[Mapping[str, Any]], end: End, cell: "CellSettings", code: int | None) -> str:
    """Explain in one line why a command ended before its window did, and what to do.

    notes: what its processes saw; code: the exit code of the command, None if it was told to end.
    """
    when = f"in step {end.step}" if end.step else "before its first step"
    if code is None:
        return f"{STOPPED} {when}{end.place}"
    if end.error and code:
        return f"the script failed {when} with {end.error}{end.place}"
    ended = _describe_code(code)
    if end.step is None:
        return (
            f"the command {ended} before any of its Python processes imported torch: profzoo follows scripts that "
            "train or run networks of torch, and cannot follow `python -I` or `python -E`"
        ) + (f"; {UNEXPLAINED}" if code else "")
    if code or not notes:
        return f"the command {ended} {when}{end.place}, {UNEXPLAINED}"
    most = max(notes, key=lambda note: (note["steps"], note["optimizer_steps"], note["calls"]))
    steps, warmup = most["steps"], max(cell["warmup"], 1)
    needed = warmup + cell["steps"] - cell["warmup"]
    if not steps and most.get("forked"):
        return (
            f"no step was found until the command ended: the script forked a process that calls {most['networks'][0]}, "
            f"and only processes that it spawns are measured (of vLLM: `env {SPAWN} python ...`)"
        )
    if not steps:
        return (
            f"no step was found until the command ended, {_describe_seen(most)}: say what ends a step by `step`, as "
            "module:NAME, range:NAME or dataloader"
        )
    if steps >= needed:
        # Compared windows last for some seconds, and what a step holds in memory takes a step more.
        return f"the command ended after {steps} steps, before its window was over: have the script run longer"
    return (
        f"the command ended after {steps} steps, and warm-up and window take {warmup} + {needed - warmup}: lower "
        "warmup or window, or have the script run longer"
    )


def _describe_code(code: int) -> str:
    """Say how a command ended; a signal is a negative code, or 128 and its number as of a shell."""
    numbers = {one.value: one.name for one in signal.Signals}
    if name := numbers.get(-code if code < 0 else code - 128):
        return f"was ended by {name}"
    return f"ended with exit code {code}" if code else "ended"


def _describe_seen(note: Mapping[str, Any]) -> str:
    networks = ", ".join(note["networks"]) or "no network"
    made = f"{note['optimizers']} optimizer{'' if note['optimizers'] == 1 else 's'}"
    return f"after {note['optimizer_steps']} steps of {made} and {note['calls']} calls of {networks}"


def _notes(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(name.format("*")))]


def _files(options: argparse.Namespace) -> dict[str, Path]:
    """Absolute paths of the files that the command line asks for: the script may change its working folder."""
    named = {name: getattr(options, name, None) for name in ("steps", "memory", "trace", "operators", "more", "marks")}
    return {name: path.absolute() for name, path in named.items() if path}


def _lent_packages() -> dict[str, str]:
    found = {name: importlib.util.find_spec(name) for name in LENT}
    return {
        name: spec.submodule_search_locations[0]
        for name, spec in found.items()
        if spec and spec.submodule_search_locations
    }
