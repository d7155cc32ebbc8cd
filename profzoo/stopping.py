"""Has a run that is told to end by SIGTERM end, whatever Snakemake is at."""

import signal
import threading
from typing import Any


def heed(workflow: Any) -> None:
    """From now on, a SIGTERM has Snakemake start no more jobs and end after those that run, as it means to itself.

    Its own handler takes a lock that the thread which it interrupts may hold, and then both wait for ever (9.27).
    timeout, systemd and batch systems end what they run by that signal.
    """

    def stop(*_: object) -> None:
        threading.Thread(target=workflow.scheduler.exit_gracefully, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
