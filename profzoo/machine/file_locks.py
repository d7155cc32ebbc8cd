"""Locks by files (the kernel's flock), which are free as soon as their holder is gone, and are removed after use.

Hosts that share a file system exclude each other by these locks. On a file system without locks, they exclude nobody.
Anybody with write permission may put something else in the place of such a file. Therefore links are not followed, and
files that profzoo did not make are neither written nor removed.
"""

import errno
import fcntl
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Error numbers of file systems without locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Text that profzoo writes into a lock file: complete, cut off, or with the zero bytes that a power loss leaves.
MARK = re.compile(r'\0*(\{("(\w{0,4}|(host|pid|run)".*))?)?\s*', re.DOTALL)
# Largest part of a lock file that is read.
LONGEST_BYTES = 1 << 16
KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


class ForeignError(OSError):
    """profzoo did not make a file; the message names the file and says what to do, in one line."""


@contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """Lock the file while the body runs and yield its descriptor; waits for the current holder.

    Raises:
        FileNotFoundError: the folder does not exist.
        ForeignError: profzoo did not make the file.
    """
    descriptor = acquire_lock(path, wait=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def acquire_lock(path: Path, wait: bool, create: bool = True) -> int:
    """Open and lock the file; the lock lasts until the returned descriptor is closed.

    Args:
        wait: whether to wait for the current holder.
        create: whether to create a missing file.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is false.
        FileNotFoundError: the folder does not exist, or the file does not and `create` is false.
        ForeignError: profzoo did not make the file, or it belongs to a user who lets nobody else write it.
    """
    while True:
        try:
            descriptor = open_lock(path, create)
        except PermissionError as error:
            raise _barred(path, error) from error
        try:
            lock_descriptor(descriptor, wait)
            if is_same_file(descriptor, path):
                # The content is checked only now, because the holder may have been writing it before.
                if not MARK.fullmatch(read_text(descriptor)):
                    raise ForeignError(f"{path} has content that profzoo did not write: move it away")
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # The last holder has removed the file in the meantime, and other processes lock its successor.
        os.close(descriptor)


def open_lock(path: Path, create: bool = True, shared: bool = False) -> int:
    """Open a lock file for reading and writing, and create it if it is missing and `create` is set.

    shared: whether every user may write a created file.

    Raises:
        FileNotFoundError: the folder does not exist, or the file does not and `create` is false.
        ForeignError: the path is no regular file, or a file with several names.
    """
    while True:
        try:
            # The check comes before opening, because opening a device may have effects.
            _check(path, path.lstat())
            # O_CREAT is missing because Linux forbids it for another user's file in a folder that all may write to.
            descriptor = _open(path, os.O_RDWR)
        except FileNotFoundError:
            if not create:
                raise
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            if shared:
                os.fchmod(descriptor, 0o666)
        return descriptor


def _open(path: Path, how: int) -> int:
    """Open the file with close-on-exec, so that programs started by this process do not keep the lock."""
    try:
        descriptor = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ForeignError(_foreign(path, "a symbolic link")) from error
        raise
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, found: os.stat_result) -> None:
    """Check that this is a regular file with no other hard link, which could belong to somebody else."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise ForeignError(_foreign(path, describe_file_kind(found)))


def describe_file_kind(found: os.stat_result) -> str:
    """Describe what kind of file this is, in words."""
    of_file = "a file with another name, too" if found.st_nlink > 1 else "a file"
    return next((words for test, words in KINDS if test(found.st_mode)), of_file)


def _foreign(path: Path, what: str) -> str:
    return f"{path} is {what}, which profzoo did not make and leaves as it is: remove it"


def _barred(path: Path, error: OSError) -> OSError:
    """Error that explains why a file without write permission cannot be locked: held, or left by another user."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except OSError:
        descriptor = None
    if descriptor is not None:
        try:
            lock_descriptor(descriptor, wait=False)
        except BlockingIOError as held:
            return held
        except OSError:
            # Some file systems, such as NFS, allow exclusive locks only on files that are open for writing.
            pass
        finally:
            os.close(descriptor)
    try:
        whose = path.lstat().st_uid
    except OSError:
        return error
    if whose == os.geteuid():
        return error
    return ForeignError(
        f"{path} belongs to {user_name(whose)}: have it removed, once no run of theirs is at work there"
    )


def user_name(user: int) -> str:
    """Name of a user, or the number if this machine knows no name."""
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


def lock_descriptor(descriptor: int, wait: bool) -> None:
    """Lock an open file, if its file system supports locks.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is false.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def explain_missing_locks(descriptor: int) -> str | None:
    """Error text if the file system of this open file does not support locks; None if it does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror if error.errno in NO_LOCKS else None
    return None


def is_unlocked(descriptor: int) -> bool | None:
    """Whether no other process holds the lock of an open file; None if the file system has no locks."""
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


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether the open file is still the file at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def read_lock(path: Path) -> str:
    """Return the text of a lock file, whoever holds it.

    Raises:
        OSError: the file does not exist, or may not be read.
    """
    descriptor = _open(path, os.O_RDONLY)
    try:
        return read_text(descriptor)
    finally:
        os.close(descriptor)


def read_text(descriptor: int) -> str:
    """Read an open file as text, up to the greatest size of profzoo's own lock files."""
    return os.pread(descriptor, LONGEST_BYTES, 0).decode(errors="replace")


def replace_text(descriptor: int, text: str) -> None:
    """Replace the content of an open file by this text."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
