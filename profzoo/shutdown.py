"""Has a run end with its last job, and when it is told to by SIGTERM, whatever Snakemake is at."""

import signal
import threading
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from profzoo.errors import ConfigError
from profzoo.workflow import snakemake_internals


def heed_sigterm(workflow: Any, endless: Collection[str] = ()) -> None:
    """From now on, a SIGTERM has Snakemake start no more jobs and end after those that run, as it means to itself.

    Its own handler takes a lock that the thread which it interrupts may hold, and then both wait for ever (9.27).
    timeout, systemd and batch systems end what they run by that signal.

    endless: rules of this run whose jobs would never end by themselves, and get a SIGTERM then; also where this process
    alone gets a SIGINT, which Snakemake leaves to the terminal to send to jobs, and waits for them.
    """
    scheduler = workflow.scheduler

    def stop(*_: object) -> None:
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


def _stop(scheduler: Any, endless: Collection[str]) -> None:
    snakemake_internals.end_gracefully(scheduler)
    _end(scheduler, endless)


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
