"""Locks by files that are removed once they are not needed: the kernel's (flock), free as soon as their holder is gone.

Several hosts that share a file system may hold them against each other; where that has no locks, they hold nothing.
Whoever may write to the folder may put anything in the place of such a file: links are not followed, and what profzoo
did not make is neither written nor removed.
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

# How a file system says that it has no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# What profzoo writes into such a file, as far as it came, and what a power loss leaves of that.
MARK = re.compile(r'\0*(\{("(\w{0,4}|(host|pid|run)".*))?)?\s*', re.DOTALL)
# Of what such a file says.
LONGEST_BYTES = 1 << 16
KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


class ForeignError(OSError):
    """There is something that profzoo did not make; the message is one line that says what, and what to do."""


@contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """A descriptor of the file, which is locked while the body runs; waits for whoever holds it.

    Raises:
        FileNotFoundError: its folder is not there.
        ForeignError: it is none of profzoo's.
    """
    descriptor = acquire_lock(path, wait=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def acquire_lock(path: Path, wait: bool, create: bool = True) -> int:
    """A descriptor of the file, which is locked until that is closed.

    create: whether the file is made where there is none.

    Raises:
        BlockingIOError: somebody else holds it, and this is not to wait.
        FileNotFoundError: its folder is not there, or the file is not and is not to be made.
        ForeignError: it is none of profzoo's, or of a user who lets nobody else write it.
    """
    while True:
        try:
            descriptor = open_lock(path, create)
        except PermissionError as error:
            raise _barred(path, error) from error
        try:
            lock_descriptor(descriptor, wait)
            if is_same_file(descriptor, path):
                # Only now, as its holder may have been writing.
                if not MARK.fullmatch(read_text(descriptor)):
                    raise ForeignError(f"{path} holds something else than profzoo writes there: move it away")
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Its last holder has removed it meanwhile, and others lock the file that came after it.
        os.close(descriptor)


def open_lock(path: Path, create: bool = True, shared: bool = False) -> int:
    """A descriptor of a lock's file, to read and write it; made where there is none, if it is to be.

    shared: whether every user may write what is made.

    Raises:
        FileNotFoundError: its folder is not there, or the file is not and is not to be made.
        ForeignError: it is no file, or one that has another name too.
    """
    while True:
        try:
            # Looked at before, as to open a device may do something.
            _check(path, path.lstat())
            # Without O_CREAT: Linux forbids it for another user's file in a folder that all may write to.
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
    """A descriptor, which the programs that this process starts do not get, as they would hold the lock on."""
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
    """That it is a file, which has no other name by which it may be somebody's."""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise ForeignError(_foreign(path, describe_file_kind(found)))


def describe_file_kind(found: os.stat_result) -> str:
    """What there is, in words."""
    of_file = "a file with another name, too" if found.st_nlink > 1 else "a file"
    return next((words for test, words in KINDS if test(found.st_mode)), of_file)


def _foreign(path: Path, what: str) -> str:
    return f"{path} is {what}, which profzoo did not make and leaves as it is: remove it"


def _barred(path: Path, error: OSError) -> OSError:
    """Why a file that may not be written cannot be locked: somebody holds it, or another user has left it."""
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
            # As of NFS, which locks for writing only what may be written.
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
    """A user's name, as far as this machine knows it."""
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


def lock_descriptor(descriptor: int, wait: bool) -> None:
    """Lock an open file, where its file system has locks.

    Raises:
        BlockingIOError: somebody else holds it, and this is not to wait.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def explain_missing_locks(descriptor: int) -> str | None:
    """What the file system of a file that this process holds says of locks where it has none; None where it has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror if error.errno in NO_LOCKS else None
    return None


def is_unlocked(descriptor: int) -> bool | None:
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


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def read_lock(path: Path) -> str:
    """What a lock's file says, which anybody may hold.

    Raises:
        OSError: there is none, or it may not be read.
    """
    descriptor = _open(path, os.O_RDONLY)
    try:
        return read_text(descriptor)
    finally:
        os.close(descriptor)


def read_text(descriptor: int) -> str:
    """What a file holds, as text, as far as anything of profzoo's goes."""
    return os.pread(descriptor, LONGEST_BYTES, 0).decode(errors="replace")


def replace_text(descriptor: int, text: str) -> None:
    """Have a file hold this text alone."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
