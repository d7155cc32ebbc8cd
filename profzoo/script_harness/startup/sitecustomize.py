"""Python imports this module when it starts: it attaches profzoo to a script's process once torch is imported.

`launcher.py` puts this folder on PYTHONPATH. The standard library alone is imported here, as every Python process of
the command starts with this file, also those that never import torch.
"""

import importlib.machinery
import importlib.util
import os
import re
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType, TracebackType

HERE = Path(__file__).resolve().parent
# The package `profzoo`, which is not on the path: `models`, `config` and `tests` beside it are names that scripts use.
PACKAGE = HERE.parents[1]
# Path of the JSON file that says what to measure (launcher.py writes it).
TASK = "PROFZOO_SCRIPT"
# Names the folder in which it is noted what a process reads, and the module that does so.
NOTES, OBSERVER = "PROFZOO_OBSERVED_FILES", "profzoo.harness.observed_files"
# Note beside that file of what ended a process, by its number.
ERROR = "error-{}.txt"
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


def note_failure(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Leave a note of an error that ends the process; a session, once attached, adds what it has seen."""
    lines = CONTROLS.sub("", str(error).strip() or "no message").splitlines()
    frames = []
    while where is not None:
        frames.append(f"{os.path.relpath(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}")
        where = where.tb_next
    own = [frame for frame in frames if "site-packages" not in frame] or frames
    told = f"{kind.__name__}: {lines[0]}" + (f" ({own[-1]})" if own else "")
    note = Path(os.environ[TASK]).with_name(ERROR.format(os.getpid()))
    with suppress(OSError):
        note.write_text(told)


def observe_files() -> None:
    """Note what this process reads from here on: by a module that is loaded by its file, as the package is not yet."""
    spec = importlib.util.spec_from_file_location(OBSERVER, PACKAGE / "harness" / "observed_files.py")
    if OBSERVER not in sys.modules and spec is not None and spec.loader is not None:
        # The package finds it under its own name later.
        sys.modules[OBSERVER] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.modules[OBSERVER].observe_process()


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
