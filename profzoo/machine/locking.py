"""Locks by files that are removed once they are not needed: the kernel's (flock), free as soon as their holder is gone.

Several hosts that share a file system may hold them against each other; where that has no locks, they hold nothing.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# How a file system says that it has no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A descriptor of the file, which is locked while the body runs; waits for whoever holds it.

    Raises:
        FileNotFoundError: its folder is not there.
    """
    descriptor = acquired(path, wait=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def acquired(path: Path, wait: bool) -> int:
    """A descriptor of the file, which is locked until that is closed.

    Raises:
        BlockingIOError: somebody else holds it, and this is not to wait.
        FileNotFoundError: its folder is not there.
    """
    while True:
        # Not handed to the programs that this process starts, which would hold it on.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, wait)
            if _same(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its last holder has removed it meanwhile, and others lock the file that came after it.
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def free(descriptor: int) -> bool | None:
    """Whether nobody else holds the lock of a file that is open; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def read(descriptor: int) -> str:
    """All that a file holds, as text."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")


def write(descriptor: int, text: str) -> None:
    """Have a file hold this text alone."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
