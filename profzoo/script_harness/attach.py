"""Attaches a session to a script's process, once torch has been imported."""

import atexit
import json
import mmap
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from profzoo.harness import observed_files
from profzoo.machine import gpu_slots
from profzoo.script_harness import task as tasks

if TYPE_CHECKING:
    from torch import nn

    from profzoo.script_harness.session import Session

# What the process imports of its own; without it nothing can be measured there.
NEEDED = ("numpy", "nvtx")


def attach(path: str) -> None:
    """Measure this process as the task in a file says; a process that cannot be measured ends with one line."""
    task = tasks.read_task(path)
    try:
        tasks.find_packages(task)
        # Here, as these take torch and the packages.
        import torch

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
    observed_files.follow_torch(torch)
    session = Session(task)
    session.settings.apply_to_process()
    observers.watch_all(session)
    session.networks.step_module_called = session.module_called
    # What a process forks, such as one that loads data, is not the one that is measured.
    os.register_at_fork(after_in_child=lambda: _forget(task, session))
    _note_progress(task, session)
    gpu_slots.wait_for_turn()


def _forget(task: tasks.Task, session: "Session") -> None:
    """Measure nothing in a forked process; leave a note if it calls a network, for where nothing else is found."""
    from torch.nn.modules import module as modules

    session.active = False

    def note(network: "nn.Module", inputs: Any) -> None:
        if next(network.parameters(), None) is None:
            return
        hook.remove()
        seen = {**session.describe_progress(), "networks": [type(network).__name__], "calls": 1, "forked": True}
        with suppress(OSError):
            (task.folder / tasks.PROGRESS.format(os.getpid())).write_text(json.dumps(seen))

    hook = modules.register_module_forward_pre_hook(note)


def _note_progress(task: tasks.Task, session: "Session") -> None:
    """Leave notes of the step that the process is in, and of what was seen when it ends before its window does."""
    owner = os.getpid()
    with (task.folder / tasks.STEP.format(owner)).open("w+b") as file:
        file.write(bytes(tasks.NUMBER.size))
        file.flush()
        # The kernel keeps what is written into memory, however the process ends.
        session.reached = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    def leave_note() -> None:
        measured = task.folder / tasks.RANK.format(owner)
        if os.getpid() != owner or measured.exists():
            return
        if not (task.folder / tasks.ERROR.format(owner)).exists():
            session.end_with_script()
        if not measured.exists():
            progress = session.describe_progress()
            (task.folder / tasks.PROGRESS.format(owner)).write_text(json.dumps(progress))

    atexit.register(leave_note)
