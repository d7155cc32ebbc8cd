"""Prepares a measured program that a job started: it gets the user's variables, and ends when the job ends."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from profzoo.machine import process_tree, program_variables, scratch_folder

# Ends a job when its snakemake or shell was killed and cannot send it a signal.

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


# nsys starts programs with a umask of 0. Until they have the job's umask again they write no bytecode, because any user
# could replace such files.
UMASK, NO_BYTECODE = "PROFZOO_UMASK", "PYTHONDONTWRITEBYTECODE"


def job_variables(folder: Path) -> dict[str, str]:
    """Environment variables that tell a program its job; folder: the job's temporary folder."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {scratch_folder.JOB: str(folder), UMASK: f"{mask:04o}", NO_BYTECODE: "1"}


def enter_job(given: MutableMapping[str, str] = os.environ) -> None:
    """Apply the job's environment variables, if they are set; given: the environment of this process.

    Raises:
        SystemExit: the job has ended meanwhile.
    """
    if mask := given.pop(UMASK, None):
        os.umask(int(mask, 8))
        # Without bytecode, importing torch takes several times as long.
        given.pop(NO_BYTECODE, None)
        sys.dont_write_bytecode = False
    folder = given.get(scratch_folder.JOB)
    if folder and not scratch_folder.die_with_folder(Path(folder)):
        print(f"the job of this program has ended: {folder} is nobody's", file=sys.stderr)
        sys.exit(1)
    if given is os.environ:
        program_variables.restore_variables()
