"""Gives each job exclusive GPUs: one lock file per GPU, which only one job on the machine can hold.

Locks are the kernel's (flock). A lock is free as soon as no process has its descriptor any more, however the processes
ended. A lock file says who holds it.
"""

import fcntl
import json
import os
import pwd
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import CollectError
from profzoo.machine import file_locks
from profzoo.machine.job_limits import FOLDER

PAUSE_S = 0.2
# Characters of a lock file's text that are shown; any user may have written it.
LONGEST = 1000


@dataclass(frozen=True)
class HeldGpus:
    """GPUs that are held (words) and descriptors of their locks, which processes on these GPUs keep open."""

    words: list[str]
    descriptors: list[int]


@dataclass(frozen=True)
class LockTerms:
    """Lock folder, longest wait in seconds (wait_s; None: no limit), and the purpose written into lock files (what)."""

    folder: Path = Path(FOLDER)
    wait_s: float | None = None
    what: str = ""


DEFAULT = LockTerms()


@contextmanager
def hold_gpus(
    count: int, words: Sequence[str], waiting: Callable[[str], None], terms: LockTerms = DEFAULT
) -> Iterator[HeldGpus]:
    """Hold `count` of the GPUs while the body runs; waits until they are free.

    Args:
        count: GPUs wanted, at most as many as there are words.
        words: GPUs to choose from, by their UUIDs, which alone mean the same to every job.
        waiting: called once with a message if the job has to wait.
        terms: lock folder, longest wait and purpose.

    Raises:
        ValueError: there are fewer candidates than wanted.
        CollectError: the GPUs were not free in time, or the lock folder cannot be used.
    """
    if count > len(words):
        raise ValueError(f"{count} GPUs wanted, {len(words)} there")
    told, began = False, time.monotonic()
    while True:
        with ExitStack() as held:
            mine = HeldGpus([], [])
            for word in words:
                if len(mine.words) == count:
                    break
                descriptor = held.enter_context(_locked(_file(terms.folder, word)))
                if descriptor is not None:
                    mine.words.append(word)
                    mine.descriptors.append(descriptor)
            if len(mine.words) == count:
                for descriptor in mine.descriptors:
                    _sign(descriptor, terms.what)
                yield mine
                return
        # All locks are released before waiting; otherwise two jobs that need several GPUs could wait for each other
        # forever.
        line = f"waiting for {count} of {len(words)} GPU(s), which other jobs on this machine hold"
        if terms.wait_s is not None and time.monotonic() - began > terms.wait_s:
            raise _late(line, terms, words)
        if not told:
            waiting(line + _holders(terms.folder, words))
            told = True
        time.sleep(PAUSE_S * (0.5 + random.random()))


@dataclass(frozen=True)
class GpuLockFile:
    """Lock file of one GPU, opened by this process; `hold` locks it. descriptor: for processes to keep open."""

    word: str
    path: Path
    descriptor: int
    terms: LockTerms

    def hold(self, waiting: Callable[[str], None], over: threading.Event, pause_s: float, quiet_s: float = 0.0) -> bool:
        """Wait for the lock; return True if it was acquired before `over` was set.

        Args:
            waiting: called once with a message if the wait takes longer than quiet_s.
            over: event that ends the wait.
            pause_s: seconds between two attempts.
            quiet_s: seconds before the message.

        Raises:
            CollectError: the GPU was not free in time, or the file is no longer the one that others lock.
        """
        told, began = False, time.monotonic()
        while not _held(self.descriptor, self.path):
            line = "waiting for the GPU, which another job on this machine holds"
            if self.terms.wait_s is not None and time.monotonic() - began > self.terms.wait_s:
                raise _late(line, self.terms, [self.word])
            if not told and time.monotonic() - began >= quiet_s:
                waiting(line + _holders(self.terms.folder, [self.word]))
                told = True
            if over.wait(pause_s):
                return False
        if not file_locks.is_same_file(self.descriptor, self.path):
            raise CollectError(f"{self.path} was removed while this job waited for the GPU: run snakemake again")
        _sign(self.descriptor, self.terms.what)
        return True


@contextmanager
def open_slot(word: str, terms: LockTerms) -> Iterator[GpuLockFile]:
    """Open the lock file of a GPU; its lock ends with the body and all processes that have its descriptor.

    Raises:
        CollectError: the file cannot be used.
    """
    path = _file(terms.folder, word)
    descriptor = _opened(path)
    try:
        yield GpuLockFile(word, path, descriptor, terms)
    finally:
        os.close(descriptor)


def _late(line: str, terms: LockTerms, words: Sequence[str]) -> CollectError:
    return CollectError(
        f"{line}{_holders(terms.folder, words)}: not free within {terms.wait_s:g} s (locks.wait); see to those "
        "jobs, or set locks.folder to one that only your jobs use"
    )


def _file(folder: Path, word: str) -> Path:
    return folder / f"{word.replace('/', '-')}.lock"


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Lock the file while the body runs and yield its descriptor; yield None if another process holds it."""
    descriptor = _opened(path)
    try:
        # If the file was replaced in the meantime, other jobs lock its successor.
        yield descriptor if _held(descriptor, path) and file_locks.is_same_file(descriptor, path) else None
    finally:
        os.close(descriptor)


def _held(descriptor: int, path: Path) -> bool:
    """Try to lock the file; True if no other process holds it.

    Raises:
        CollectError: the file system has no locks, without which two jobs would disturb each other's measurements.
    """
    try:
        return _flocked(descriptor)
    except OSError as error:
        why = (
            f"its file system has no locks ({error.strerror})" if error.errno in file_locks.NO_LOCKS else error.strerror
        )
        raise CollectError(f"{path}: the GPU cannot be locked: {why}; set locks.folder to a local one") from error


def _flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _opened(path: Path) -> int:
    """Open, or create, a lock file that every user of the machine may lock.

    Raises:
        CollectError: the file cannot be used, or profzoo did not make it.
    """
    try:
        _make(path.parent)
        return file_locks.open_lock(path, shared=True)
    except file_locks.ForeignError as error:
        raise CollectError(f"the GPU cannot be locked: {error}, or set locks.folder") from error
    except OSError as error:
        raise CollectError(f"{path}: the GPU cannot be locked: {error.strerror}; set locks.folder") from error


def _make(folder: Path) -> None:
    """Make the folder of the locks if it is missing.

    Raises:
        OSError: the folder cannot be made, or is another user's symbolic link.
    """
    with suppress(FileNotFoundError):
        found = folder.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
            raise file_locks.ForeignError(
                f"{folder} is a symbolic link of {file_locks.user_name(found.st_uid)}: remove it"
            )
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        # Another job has created the folder in the meantime, and gives everybody access.
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o1777)
    finally:
        os.close(descriptor)


def _sign(descriptor: int, what: str) -> None:
    """Write into the lock file which process holds it."""
    user = str(os.getuid())
    with suppress(KeyError):
        # The user may have no name inside a container.
        user = pwd.getpwuid(os.getuid()).pw_name
    text = json.dumps({"pid": os.getpid(), "user": user, "what": what}) + "\n"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _holders(folder: Path, words: Sequence[str]) -> str:
    """Text in brackets that names the holders of locked GPUs; empty if no lock file names one."""
    said = []
    for word in words:
        path = _file(folder, word)
        descriptor = _opened(path)
        try:
            if not _held(descriptor, path) and (line := _signed(descriptor)):
                said.append(f"{word}: {line}")
        finally:
            os.close(descriptor)
    return f" ({'; '.join(said)})" if said else ""


def _signed(descriptor: int) -> str:
    try:
        holder = json.loads(file_locks.read_text(descriptor)[:LONGEST])
        words = f"process {int(holder['pid'])} of {holder['user']}, {holder['what']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return "".join(letter for letter in words if letter.isprintable())
