"""Makes and cleans the folder of a job's temporary files; a lock on it says whether the job is alive.

The job's processes find it in their environment (JOB). The folder is locked (flock) as long as the collecting process
or its supervisor lives. If both end at once, a pipe in it ends the measured program. The next job ends any process
whose environment names a folder that nobody holds.
"""

import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from profzoo.machine import file_locks, process_tree

# The variable that holds the folder; prefixes of its name before and after it is locked; name of the pipe in it.
JOB = "PROFZOO_JOB"
NEW, PREFIX = ".profzoo-job-", "profzoo-job-"
PIPE = "alive"
ENDED_S = 5.0
# Longest path of a temporary folder in which torch's workers can create sockets, two folders below. With a longer
# TMPDIR they hang, so SHORT is used instead.
LONGEST, SHORT = 50, "/tmp"
# The variable that names the cache folder of torch.compile, and the name of a cache that outlasts jobs.
COMPILED, OUTLASTING = "TORCHINDUCTOR_CACHE_DIR", "profzoo-compiled"
# Prefixes of the file that nsys leaves in the folder for each traced program, and of its semaphore, named alike.
TRACED, SEMAPHORE = "NSys-termination_status_", "sem.NSys-process_waiter-"
SHARED_MEMORY = Path("/dev/shm")


def make_scratch() -> tuple[Path, list[int]]:
    """Make a temporary folder; return it and its descriptors, which stay open as long as the job is alive."""
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=_places()[0]))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    # Without locks the job still runs, but its folder and processes stay if it is killed.
    file_locks.lock_descriptor(lock, wait=True)
    os.mkfifo(new / PIPE, 0o600)
    # The pipe is opened for reading too, because opening it only for writing fails while nobody reads it.
    pipe = os.open(new / PIPE, os.O_RDWR | os.O_NONBLOCK)
    # The folder gets its final name only when it is locked, or the next job could take it for a dead job's folder.
    return new.rename(new.with_name(PREFIX + new.name.removeprefix(NEW))), [lock, pipe]


def _places() -> list[str]:
    """List where job folders may be made: TMPDIR first, if its path is short enough for sockets."""
    given = tempfile.gettempdir()
    return [given] if len(given) <= LONGEST else [SHORT, given]


def shared_compile_cache() -> dict[str, str]:
    """Variables that share this user's torch.compile cache among jobs; empty if others could write there."""
    folder = Path(_places()[0]) / f"{OUTLASTING}-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return {COMPILED: str(folder)}
    return {}


def remove_scratch(folder: Path) -> None:
    """Remove a job's folder and its files elsewhere, if they exist."""
    for status in folder.glob(f"nvidia/nsight_systems/{TRACED}*"):
        with suppress(OSError):
            (SHARED_MEMORY / (SEMAPHORE + status.name.removeprefix(TRACED))).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def claim_abandoned(folder: Path) -> int | None:
    """Lock a folder that no job holds and return the descriptor; None if it is held, or if that is unknown."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(lock).st_uid == os.getuid() and file_locks.try_lock(lock):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def sweep_abandoned() -> list[int]:
    """End processes left by this user's dead jobs, remove their files, and return the ended processes."""
    stale = {}
    for folder in [folder for place in _places() for folder in Path(place).glob(f"{PREFIX}*")]:
        if (lock := claim_abandoned(folder)) is not None:
            stale[folder] = lock
    left = found = _marked(list(stale))
    deadline = time.monotonic() + ENDED_S
    while left and time.monotonic() < deadline:
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(process_tree.PAUSE_S)
        left = _marked(list(stale))
    for folder, lock in stale.items():
        if not left:
            remove_scratch(folder)
        os.close(lock)
    return found


def _marked(folders: Sequence[Path]) -> list[int]:
    """This user's processes whose environment names one of these folders, or that hold its pipe, whatever their parent.

    The environment of a fork is shown as that of the process that was forked.
    """
    words, pipes = {f"{JOB}={folder}".encode() for folder in folders}, {str(folder / PIPE) for folder in folders}
    found = []
    for process in process_tree.running_processes() if words else ():
        # The process may have ended, or belong to another user.
        with suppress(OSError):
            own = Path(f"/proc/{process}").stat().st_uid == os.getuid() and process_tree.is_alive(process)
            named = own and words & set(Path(f"/proc/{process}/environ").read_bytes().split(b"\0"))
            if named or (own and pipes & _open_paths(process)):
                found.append(process)
    return found


def _open_paths(process: int) -> set[str]:
    """Paths of the files that a process has open."""
    found = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        # It may be closed by now.
        with suppress(OSError):
            found.add(str(link.readlink()))
    return found


def die_with_folder(folder: Path) -> bool:
    """Have this process group killed once nobody holds the folder; False if nobody does already."""
    try:
        pipe = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return False
    except OSError:
        return False
    # The kernel sends the signal when the last writer closes the pipe, so that no code has to run for it.
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # The kernel sends no signal for writers that ended before this point, so check the lock.
    lock = claim_abandoned(folder)
    if lock is not None:
        os.close(lock)
    return lock is None
