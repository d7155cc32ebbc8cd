"""Python imports this module when it starts: it attaches profzoo to a script's process once torch is imported.

`launcher.py` puts this folder on PYTHONPATH. The standard library alone is imported here, as every Python process of
the command starts with this file, also those that never import torch.
"""

import faulthandler
import importlib.machinery
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType, ModuleType, TracebackType

HERE = Path(__file__).resolve().parent
# The package `profzoo`, which is not on the path: `models`, `config` and `tests` beside it are names that scripts use.
PACKAGE = HERE.parents[1]
# Path of the JSON file that says what to measure (launcher.py writes it).
TASK = "PROFZOO_SCRIPT"
# Variable with the folder for recordings of a process that may be asked for one, and the signal that asks.
ARMED, ASKING = "PROFZOO_ATTACH", signal.SIGRTMIN + 7
# Names the folder in which it is noted what a process reads, and the module that does so.
NOTES, OBSERVER = "PROFZOO_OBSERVED_FILES", "profzoo.harness.observed_files"
# Notes beside that file of what ended a process, by its number: an error of Python or an exit code, and a signal.
ERROR, FATAL = "error-{}.txt", "fatal-{}.txt"
# What an error has in its message that was raised in another process.
TRACE = "Traceback (most recent call last)"
# Escape sequences that colour a terminal, and control characters but line breaks.
CONTROLS = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x09\x0b-\x1f]")


def load_package(name: str, folder: Path) -> ModuleType:
    """Import a package from its folder, without its parent folder on the path."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package {name} in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def restore_variables() -> None:
    """Take the user's own variables from the job's file, before anything reads the environment."""
    path = PACKAGE / "machine" / "program_variables.py"
    spec = importlib.util.spec_from_file_location("profzoo_program_variables", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.restore_variables()


class TorchFinder(MetaPathFinder):
    """Finds torch as Python would, and calls a function when its import has ended."""

    def __init__(self, task: str) -> None:
        self._task = task

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        """Return torch's own specification with a loader that attaches profzoo; None for any other module."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_attach(module: ModuleType) -> None:
            load(module)
            load_package("profzoo", PACKAGE)
            importlib.import_module("profzoo.script_harness.attach").attach(self._task)

        spec.loader.exec_module = load_and_attach
        return spec


def note_end(said: str, places: Iterable[tuple[FrameType, int]]) -> None:
    """Leave a note of what ends the process: a line about it, and where, innermost first, as faulthandler writes it."""
    frames = [f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}' for frame, line in places]
    with suppress(OSError):
        note_path(ERROR).write_text("\n".join([said, *frames]))


def note_path(name: str) -> Path:
    """Path of a note about this process, beside the task."""
    return Path(os.environ[TASK]).with_name(name.format(os.getpid()))


def note_failure(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Leave a note of an error that ends the process; a session, once attached, adds what it has seen."""
    text = CONTROLS.sub("", str(error).strip() or "no message")
    lines = [line for line in text.splitlines() if line.strip()]
    # An error of another process comes with all that was printed there, whose last line names it.
    told = lines[-1] if TRACE in text else f"{kind.__name__}: {lines[0]}"
    places: list[tuple[FrameType, int]] = []
    while where is not None:
        places.insert(0, (where.tb_frame, where.tb_lineno))
        where = where.tb_next
    note_end(told.strip(), places)


def note_exits() -> None:
    """Leave a note where this process ends itself with an exit code, and where a signal ends it."""
    owner, leave, leave_at_once = os.getpid(), sys.exit, os._exit

    def note(status: object) -> None:
        # What a process has forked ends by itself.
        if os.getpid() == owner and status:
            line = str(status).strip().splitlines()[-1:] if not isinstance(status, int) else []
            said = f"SystemExit: {line[0]}" if line else ""
            places, frame = [], sys._getframe(2)
            while frame is not None:
                places.append((frame, frame.f_lineno))
                frame = frame.f_back  # type: ignore[assignment]
            note_end(said, places)

    def exit_noted(status: object = None, /) -> None:
        note(status)
        leave(status)  # type: ignore[arg-type]

    def exit_noted_at_once(status: int) -> None:
        note(status)
        leave_at_once(status)

    sys.exit, os._exit = exit_noted, exit_noted_at_once  # type: ignore[assignment]
    if faulthandler.is_enabled():
        return
    with suppress(OSError):
        file = note_path(FATAL).open("w")
        faulthandler.enable(file)
        faulthandler.register(signal.SIGTERM, file, chain=True)
        # What it forks, such as a process that loads data, is ended by signals as a rule.
        os.register_at_fork(after_in_child=faulthandler.disable)
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))


def observe_files() -> None:
    """Note what this process reads from here on: by a module that is loaded by its file, as the package is not yet."""
    spec = importlib.util.spec_from_file_location(OBSERVER, PACKAGE / "harness" / "observed_files.py")
    if OBSERVER not in sys.modules and spec is not None and spec.loader is not None:
        # The package finds it under its own name later.
        sys.modules[OBSERVER] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.modules[OBSERVER].observe_process()


def answer(number: int, frame: FrameType | None) -> None:
    """Record steps of this process, as another one asks it to; profzoo is imported no sooner."""
    load_package("profzoo", PACKAGE)
    importlib.import_module("profzoo.script_harness.recorded_files").answer(os.environ[ARMED], "torch" in sys.modules)


def run_other() -> None:
    """Run the sitecustomize that this one hides, if the environment has one."""
    rest = [folder for folder in sys.path if Path(folder or os.curdir).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# Copies: the environment notes what a program asks it for.
if NOTES in dict(os.environ):
    observe_files()
restore_variables()
if NOTES in dict(os.environ):
    # Further variables name folders of caches.
    observe_files()
run_other()
if TASK in os.environ:
    sys.meta_path.insert(0, TorchFinder(os.environ[TASK]))
    print_error = sys.excepthook

    def explain(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        """Print an error as Python does, and leave a note of it."""
        note_failure(kind, error, where)
        print_error(kind, error, where)

    sys.excepthook = explain
    note_exits()
elif ARMED in os.environ:
    signal.signal(ASKING, answer)
