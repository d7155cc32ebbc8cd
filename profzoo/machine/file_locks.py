"""Locks by files (the kernel's flock), which are free as soon as their holder is gone, and are removed after use.

Hosts that share a file system exclude each other by these locks. On a file system without locks, they exclude nobody.
Anybody with write permission may put something else in the place of such a file. Therefore links are not followed, and
files that profzoo did not make are neither written nor removed.
"""

import atexit
import contextlib
import datetime
import errno
import fcntl
import json
import os
import pwd
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError
from profzoo.machine import process_tree

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
        ForeignError: the path is not a regular file, or a file with several names.
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


def try_lock(descriptor: int) -> bool:
    """Lock an open file unless another process holds its lock; return whether it is locked now.

    Raises:
        OSError: the file cannot be locked, for example because its file system has no locks (NO_LOCKS).
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
        try_lock(descriptor)
    except OSError as error:
        return error.strerror if error.errno in NO_LOCKS else None
    return None


def is_unlocked(descriptor: int) -> bool | None:
    """Whether no other process holds the lock of an open file; None if the file system has no locks."""
    try:
        if not try_lock(descriptor):
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


# Identifies the process that holds a lock file, on this host or another, and checks whether it is still alive.
#
# Each owner has a file beside the locks and keeps it locked (flock) as long as it lives. An owner in an unknown state
# counts as alive, because taking a lock from a living owner is worse than asking a user.

# File systems that only one kernel can mount at a time, so that owners of another kernel hold no locks there any more.
LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
BOOT, MACHINE = Path("/proc/sys/kernel/random/boot_id"), Path("/etc/machine-id")
MOUNTS = Path("/proc/self/mountinfo")
FILE = re.compile(r"[0-9]+-[0-9a-f]{16}")


@dataclass(frozen=True)
class Owner:
    """A process that holds locks.

    process: identity of the process, from process_tree.process_identity. host: name of its host. machine: machine
    identifier of its host (/etc/machine-id). boot: identifier of the kernel's boot. file: name of the file that it
    keeps locked. since: start in UTC (ISO 8601).
    """

    process: str
    host: str
    machine: str
    boot: str
    file: str
    since: str

    def __str__(self) -> str:
        """Describe the owner in words."""
        return f"process {self.process.partition(':')[0]} on {self.host} since {self.since}"


def start_owner(folder: Path) -> tuple[Owner, int]:
    """Register this process as a lock owner; return the owner and the descriptor of its locked file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{secrets.token_hex(8)}"
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    owner = Owner(
        process_tree.process_identity(os.getpid()), socket.gethostname(), _text(MACHINE), _text(BOOT), name, since
    )
    descriptor = acquire_lock(folder / name, wait=False)
    replace_text(descriptor, format_owner(owner))
    return owner, descriptor


def format_owner(owner: Owner) -> str:
    """Format the owner as one line of text."""
    return json.dumps(asdict(owner))


def parse_owner(text: str) -> Owner | None:
    """Parse an owner from one line; None if the line identifies no process that could be checked."""
    try:
        given: Any = json.loads(text)
        owner = Owner(**given)
    except (ValueError, TypeError):
        return None
    good = all(isinstance(value, str) for value in asdict(owner).values()) and FILE.fullmatch(owner.file)
    return owner if good and re.fullmatch(r"[0-9]+:[0-9]+:[0-9]+", owner.process) else None


def is_gone(owner: Owner, folder: Path) -> bool:
    """Whether an owner with its file in this folder certainly holds no lock there any more."""
    free = _free(folder / owner.file)
    if free is False:
        return False
    if is_on_this_host(owner):
        # This kernel knows its own locks, and its processes as far as this process may see them.
        return not _works_here(owner) if free else _ended(owner)
    # An owner of this machine is gone, because the machine has restarted since. For an owner of another machine, only a
    # local file system proves that: others may keep locks that this host cannot see.
    return (bool(owner.machine) and _here(owner)) or _kind(folder) in LOCAL


def remove_dead_owners(folder: Path) -> None:
    """Remove the files of dead owners from this folder."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            owner = parse_owner(path.read_text(errors="replace")) if FILE.fullmatch(path.name) else None
            if owner and owner.file == path.name and is_gone(owner, folder):
                path.unlink()


def is_on_this_host(owner: Owner) -> bool:
    """Whether the owner runs under the same kernel boot as this process; if unknown, whether on the same host."""
    boot = _text(BOOT)
    return owner.boot == boot if owner.boot and boot else _here(owner)


def _here(owner: Owner) -> bool:
    return (owner.host, owner.machine) == (socket.gethostname(), _text(MACHINE))


def _free(path: Path) -> bool | None:
    """Whether nobody holds a lock on the file; None if that is unknown."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return is_unlocked(descriptor)
    finally:
        os.close(descriptor)


def _ended(owner: Owner) -> bool:
    """Whether a process of this kernel has ended, if this process can see it."""
    if owner.process.rpartition(":")[2] != process_tree.process_identity(os.getpid()).rpartition(":")[2]:
        return False
    try:
        os.kill(int(owner.process.partition(":")[0]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        # The process belongs to another user, and /proc may hide it.
        return False
    return process_tree.process_identity(int(owner.process.partition(":")[0])) != owner.process


def _works_here(owner: Owner) -> bool:
    """Whether a process of this kernel is alive and works in this folder rather than in a copy of it."""
    if _ended(owner):
        return False
    process = owner.process.partition(":")[0]
    if process_tree.process_identity(int(process)) != owner.process:
        # The process is in another PID namespace, and its lock would not be free if it were alive.
        return False
    try:
        return Path(f"/proc/{process}/cwd").samefile(Path.cwd())
    except OSError:
        return True


def _kind(folder: Path) -> str:
    """File system type of a folder; empty if unknown."""
    place, longest, found = os.path.realpath(folder), 0, ""
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            # If several file systems are mounted at one place, the last one hides the others.
            if len(point) >= longest and f"{place}/".startswith(f"{point.rstrip('/')}/"):
                longest, found = len(point), after.split()[0]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


# Locks a results folder for one run of snakemake at a time, across working folders and hosts.
#
# Only the main process of a run holds the lock, and jobs do not hold it. The lock therefore ends with the main process.

NAME = ".profzoo.lock"
# Characters of a lock file's text that are shown.
LONGEST = 1000
UNPROTECTED = "nothing keeps two runs from using it at once: start one at a time there"
ADVICE = "wait until it has ended or stop it, or give this run other results (pathvars: {results: FOLDER})"


@dataclass(frozen=True)
class FolderState:
    """State of a results folder when a run was planned.

    holder: text about the run that holds its lock, or None. changed_ns: time of its last change in ns, or None.
    """

    holder: str | None
    changed_ns: int | None


def inspect_folder(results: Path) -> FolderState:
    """Return the folder's present state; a plan is useless if another run changes the folder meanwhile."""
    path = results / NAME
    try:
        os.close(acquire_lock(path, wait=False, create=False))
    except BlockingIOError:
        return FolderState(_holder(path), None)
    except OSError:
        # The lock file does not exist or cannot be locked; `lock_results` reports that.
        pass
    return FolderState(None, _changed_ns(results))


def lock_results(results: Path, planned: FolderState) -> str | None:
    """Lock the folder until this process ends; return a warning for the user, or None.

    planned: state of the folder when this run was planned.

    Raises:
        ConfigError: another run holds the lock or has changed the folder since this run was planned, or the lock file
            cannot be written.
    """
    path = results / NAME
    if planned.holder:
        raise ConfigError(f"{results} is in use by another run, {planned.holder}: {ADVICE}")
    if planned.changed_ns != _changed_ns(results):
        raise ConfigError(f"another run has used {results} while this one was planned: run it again")
    try:
        results.mkdir(parents=True, exist_ok=True)
        descriptor = acquire_lock(path, wait=False)
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        said = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "folder": str(Path.cwd())}
        replace_text(descriptor, json.dumps(said))
    except BlockingIOError:
        raise ConfigError(f"{results} is in use by another run, {_holder(path)}: {ADVICE}") from None
    except OSError as error:
        refused = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        raise ConfigError(f"{results} cannot be locked for this run: {refused}") from error
    atexit.register(_release, results.absolute(), descriptor, os.getpid())
    if why := explain_missing_locks(descriptor):
        return f"{results} is on a file system without locks ({why}), so that {UNPROTECTED}"
    return None


def _release(results: Path, descriptor: int, process: int) -> None:
    """Remove the lock file, and the folder if it is then empty."""
    # This also runs when a process ends that was forked from the holder, which must not remove the lock.
    if os.getpid() != process:
        return
    with suppress(OSError):
        # The file may be another run's, created after this run's file was removed.
        if is_same_file(descriptor, results / NAME):
            (results / NAME).unlink()
            results.rmdir()
    os.close(descriptor)


def _holder(path: Path) -> str:
    """Return a text about the holder of a lock, from the lock file, which may still be empty."""
    try:
        said = json.loads(read_lock(path))
        words = f"process {said['pid']} on {said['host']} in {said['folder']}, since {said['since']}"
    except PermissionError:
        return "whose lock file names no process"
    except (OSError, ValueError, KeyError, TypeError):
        return "which has just started"
    # Any user may have written this text.
    return "".join(letter for letter in words[:LONGEST] if letter.isprintable())


def _changed_ns(results: Path) -> int | None:
    return results.stat().st_mtime_ns if results.exists() else None
