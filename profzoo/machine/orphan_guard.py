"""Ends a job when its snakemake or shell was killed and cannot send it a signal."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from profzoo.machine import process_tree

# Environment variable that tells jobs which process owns them.
OWNER = "PROFZOO_OWNER"
PAUSE_S = 0.5


def export_owner() -> None:
    """Export this process as the owner of all jobs that it starts, so that they end with it."""
    os.environ[OWNER] = process_tree.process_identity(os.getpid())


@contextmanager
def watch_parent() -> Iterator[None]:
    """Send this process a SIGTERM if the snakemake or shell that owns it ends while the body runs.

    A job that was started by hand, or by a process that is invisible from here, for example inside a container, goes
    on.
    """
    process, _, rest = os.environ.get(OWNER, "").partition(":")
    if not process.isdigit() or rest.partition(":")[2] != process_tree.process_identity(os.getpid()).split(":")[2]:
        yield
        return
    done = threading.Event()
    arguments = (os.environ[OWNER], os.getppid(), done)
    watcher = threading.Thread(target=_watch, args=arguments, daemon=True, name="owner")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(owner: str, parent: int, done: threading.Event) -> None:
    # Two looks per second cost almost nothing. PR_SET_PDEATHSIG would send the signal when the thread that started this
    # process ends, and old kernels have no descriptors of processes.
    process = int(owner.partition(":")[0])
    while process_tree.process_identity(process) == owner and os.getppid() == parent:
        if done.wait(PAUSE_S):
            return
    os.kill(os.getpid(), signal.SIGTERM)
