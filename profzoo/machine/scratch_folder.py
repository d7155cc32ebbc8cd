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

# The variable that holds the folder; its beginning, before and once it is locked; the pipe in it.
JOB = "PROFZOO_JOB"
NEW, PREFIX = ".profzoo-job-", "profzoo-job-"
PIPE = "alive"
ENDED_S = 5.0
# The longest path of a folder of temporary files in which torch's workers, two folders below, can still have sockets;
# where TMPDIR's is longer they hang, so it is this one.
LONGEST, SHORT = 50, "/tmp"
# The variable that torch.compile takes its folder from, and the name of one that outlasts jobs.
COMPILED, OUTLASTING = "TORCHINDUCTOR_CACHE_DIR", "profzoo-compiled"
# What nsys leaves in the folder for each program that it traces, and its semaphore of the same ending.
TRACED, SEMAPHORE = "NSys-termination_status_", "sem.NSys-process_waiter-"
SHARED_MEMORY = Path("/dev/shm")


def make_scratch() -> tuple[Path, list[int]]:
    """Make a temporary folder; returns it and the descriptors that hold it: while they are open, the job is alive."""
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=_places()[0]))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    # Where there are no locks, the job runs all the same, and what it leaves if it is killed stays.
    file_locks.lock_descriptor(lock, wait=True)
    os.mkfifo(new / PIPE, 0o600)
    # For reading too, as it could not be opened otherwise before anybody reads it.
    pipe = os.open(new / PIPE, os.O_RDWR | os.O_NONBLOCK)
    # Under its name once it is locked, else the next job could take it for a dead one's.
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
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    """This user's processes whose environment names one of these folders, whatever their parent."""
    words = {f"{JOB}={folder}".encode() for folder in folders}
    found = []
    for process in process_tree.running_processes() if words else ():
        # It may have ended, or be another user's.
        with suppress(OSError):
            own = Path(f"/proc/{process}").stat().st_uid == os.getuid() and process_tree.is_alive(process)
            if own and words & set(Path(f"/proc/{process}/environ").read_bytes().split(b"\0")):
                found.append(process)
    return found


def die_with_folder(folder: Path) -> bool:
    """Have this process group killed once nobody holds the folder; False if nobody does already."""
    try:
        pipe = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return False
    except OSError:
        return False
    # The kernel sends the signal as the last writer goes, so that nothing here has to run for it.
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    # Those that went before that do not count.
    lock = claim_abandoned(folder)
    if lock is not None:
        os.close(lock)
    return lock is None
