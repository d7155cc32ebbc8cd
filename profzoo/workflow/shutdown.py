"""Has a run end with its last job, and when it is told to by SIGTERM, whatever Snakemake is at."""

import os
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType
from typing import Any

from profzoo.errors import ConfigError
from profzoo.machine import process_tree
from profzoo.workflow import snakemake_internals

# Whether this run was told to end by a SIGTERM.
_told = threading.Event()


def heed_sigterm(workflow: Any, endless: Collection[str] = (), note: Callable[[], None] | None = None) -> None:
    """From now on, a SIGTERM has Snakemake start no more jobs, and ends those that run on this machine.

    A batch system kills what has not ended within 30 seconds. Snakemake's own handler takes a lock that the thread
    which it interrupts may hold, and then both wait for ever (9.27).

    endless: rules of this run whose jobs would never end by themselves, and get a SIGTERM where this process alone gets
    a SIGINT, which Snakemake leaves to the terminal to send to jobs, and waits for them. note: function that is called
    at once, before jobs end.
    """
    scheduler = workflow.scheduler

    def stop(*_: object) -> None:
        _told.set()
        if note:
            note()
        _aside(_stop, scheduler, endless)

    def interrupt(number: int, frame: FrameType | None) -> None:
        _aside(_end, scheduler, endless)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGTERM, stop)
    # Where it is ignored, such as in the background of a script, it stays so.
    if endless and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def _aside(function: Callable[..., None], *arguments: object) -> None:
    """Call it where it may wait for locks that the interrupted thread holds."""
    threading.Thread(target=function, args=arguments, daemon=True).start()


def check_alone(rules: Collection[str], endless: Collection[str]) -> None:
    """Raises ConfigError where one of the endless rules is to run beside others of a run, which would wait for it."""
    for name in sorted({*rules} & {*endless}):
        if len({*rules}) > 1:
            raise ConfigError(f"`{name}` runs until you end it, and runs alone: make the other targets first")


def was_told_to_end() -> bool:
    """Whether this run was told to end by a SIGTERM, so that it has no time for a report."""
    return _told.is_set()


def _stop(scheduler: Any, endless: Collection[str]) -> None:
    snakemake_internals.end_gracefully(scheduler)
    _end(scheduler, endless)
    # As a terminal would; what runs in a session of its own is ended by the process that started it.
    for process in process_tree.list_descendants():
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process) == os.getpgrp():
                os.kill(process, signal.SIGTERM)


def _end(scheduler: Any, endless: Collection[str]) -> None:
    snakemake_internals.end_running(scheduler, endless)


def end_at_once() -> None:
    """Have a run end with its last job: a look for work that was to come later must not keep the process alive.

    With `max-jobs-per-timespan` Snakemake (9.27) starts a thread after each choice of jobs that waits for the timespan,
    and Python waits for such threads before it ends.
    """

    def later(scheduler: Any, delay: float) -> None:
        timer = threading.Timer(delay, snakemake_internals.look_again, [scheduler])
        timer.daemon = True
        timer.start()

    snakemake_internals.schedule_by(later)
