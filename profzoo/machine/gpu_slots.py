"""Gives each job GPUs of its own: a lock file a GPU, which no two jobs on a machine hold, whoever started them.

Locks are the kernel's (flock), so those of a job that crashed are free at once.
"""

import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

# The same for every user and run, whatever their TMPDIR.
FOLDER = Path("/tmp/profzoo-gpus")
PAUSE_S = 0.2


@contextmanager
def taken(
    count: int,
    words: Sequence[str],
    waiting: Callable[[str], None],
    folder: Path = FOLDER,
) -> Iterator[list[str]]:
    """Hold so many of the GPUs while the body runs, waiting until they are free; yields their words.

    Args:
        count: GPUs wanted, at most as many as there are words.
        words: GPUs to choose from, by their UUIDs, which alone mean the same to every job.
        waiting: told once, in words, if there is something to wait for.
        folder: of the lock files.

    Raises:
        ValueError: fewer candidates than wanted.
    """
    if count > len(words):
        raise ValueError(f"{count} GPUs wanted, {len(words)} there")
    told = False
    while True:
        with ExitStack() as held:
            mine: list[str] = []
            for word in words:
                if len(mine) < count and held.enter_context(_locked(folder / f"{word.replace('/', '-')}.lock")):
                    mine.append(word)
            if len(mine) == count:
                yield mine
                return
        # All are given back while waiting, else two jobs of several GPUs could wait for each other forever.
        if not told:
            waiting(f"waiting for {count} of {len(words)} GPU(s), which other jobs on this machine hold")
            told = True
        time.sleep(PAUSE_S * (0.5 + random.random()))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the file could be locked, which it is until the body ends."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = True
    except BlockingIOError:
        held = False
    try:
        yield held
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """A descriptor of a file that everyone on the machine may lock."""
    try:
        # Without O_CREAT: Linux forbids it for another user's file in a folder like this one.
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        pass
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o1777)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, os.O_RDWR)
    os.fchmod(descriptor, 0o666)
    return descriptor
