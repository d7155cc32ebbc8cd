"""Attaches a session to a script's process, once torch has been imported."""

import atexit
import json
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from profzoo.machine import gpu_turns
from profzoo.script_harness import task as tasks

# What the process imports of its own; without it nothing can be measured there.
NEEDED = ("numpy", "nvtx")


def attach(path: str) -> None:
    """Measure this process as the task in a file says; a process that cannot be measured ends with one line."""
    task = tasks.read_task(path)
    try:
        _find_packages(task)
        # Here, as both take torch and the packages.
        from profzoo.script_harness import observers
        from profzoo.script_harness.session import Session
    except ImportError as error:
        print(
            f"profzoo: the environment of {sys.executable} lacks {error.name}, which measuring takes: install it there "
            f"({sys.executable} -m pip install {' '.join(NEEDED)})",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)
    session = Session(task)
    session.settings.apply_to_process()
    observers.watch_all(session)
    session.networks.step_module_called = session.module_called
    # What a process forks, such as one that loads data, is not the one that is measured.
    os.register_at_fork(after_in_child=lambda: _forget(session))
    _note_failures(task, session)
    gpu_turns.wait_for_turn()


def _find_packages(task: tasks.Task) -> None:
    """Import packages that the script's own environment lacks from where the workflow has them."""
    import importlib
    import importlib.util

    load_package = sys.modules["sitecustomize"].load_package
    for name, folder in task.packages.items():
        if importlib.util.find_spec(name) is None:
            load_package(name, Path(folder))


def _forget(session: object) -> None:
    session.active = False  # type: ignore[attr-defined]


def _note_failures(task: tasks.Task, session: object) -> None:
    """Leave a note of what was seen when the process ends before its window does, and of its error."""
    owner = os.getpid()
    seen: dict[str, str] = {}
    original = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        lines = (str(error).strip() or "no message").splitlines()
        frames = traceback.extract_tb(where)
        last = f" ({os.path.relpath(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        seen["error"] = f"{kind.__name__}: {lines[0]}{last}"
        original(kind, error, where)

    def leave_note() -> None:
        if os.getpid() == owner and not (task.folder / tasks.RANK.format(owner)).exists():
            progress = session.describe_progress() | seen  # type: ignore[attr-defined]
            (task.folder / tasks.PROGRESS.format(owner)).write_text(json.dumps(progress))

    sys.excepthook = note
    atexit.register(leave_note)
