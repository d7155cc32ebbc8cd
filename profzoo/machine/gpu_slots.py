"""Gives each job exclusive GPUs: one lock file per GPU; a program that starts up waits for its turn.

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
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
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
                file = held.enter_context(open_slot(word, terms))
                # If the file was replaced in the meantime, other jobs lock its successor.
                if file.lock() and file_locks.is_same_file(file.descriptor, file.path):
                    mine.words.append(word)
                    mine.descriptors.append(file.descriptor)
            if len(mine.words) == count:
                for descriptor in mine.descriptors:
                    file_locks.replace_text(descriptor, _describe_holder(terms.what))
                yield mine
                return
        # All locks are released before waiting; otherwise two jobs that need several GPUs could wait for each other
        # forever.
        line = f"waiting for {count} of {len(words)} GPU(s), which other jobs on this machine hold"
        if terms.wait_s is not None and time.monotonic() - began > terms.wait_s:
            raise _late(line, terms, words)
        if not told:
            waiting(line + _holders(terms, words))
            told = True
        time.sleep(PAUSE_S * (0.5 + random.random()))


@dataclass(frozen=True)
class GpuLockFile:
    """Lock file of one GPU, opened by this process. descriptor: for processes to keep open."""

    word: str
    path: Path
    descriptor: int
    terms: LockTerms

    def lock(self) -> bool:
        """Lock the file unless another process holds it; return whether it is locked now.

        Raises:
            CollectError: the file system has no locks, without which two jobs would disturb each other's measurements.
        """
        try:
            return file_locks.try_lock(self.descriptor)
        except OSError as error:
            lockless = error.errno in file_locks.NO_LOCKS
            why = f"its file system has no locks ({error.strerror})" if lockless else error.strerror
            raise CollectError(
                f"{self.path}: the GPU cannot be locked: {why}; set locks.folder to a local one"
            ) from error

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
        while not self.lock():
            line = "waiting for the GPU, which another job on this machine holds"
            if self.terms.wait_s is not None and time.monotonic() - began > self.terms.wait_s:
                raise _late(line, self.terms, [self.word])
            if not told and time.monotonic() - began >= quiet_s:
                waiting(line + _holders(self.terms, [self.word]))
                told = True
            if over.wait(pause_s):
                return False
        if not file_locks.is_same_file(self.descriptor, self.path):
            raise CollectError(f"{self.path} was removed while this job waited for the GPU: run snakemake again")
        file_locks.replace_text(self.descriptor, _describe_holder(self.terms.what))
        return True


@contextmanager
def open_slot(word: str, terms: LockTerms) -> Iterator[GpuLockFile]:
    """Open the lock file of a GPU; its lock ends with the body and all processes that have its descriptor.

    Raises:
        CollectError: the file cannot be used, or profzoo did not make it.
    """
    path = terms.folder / f"{word.replace('/', '-')}.lock"
    try:
        _make(path.parent)
        # Every user of the machine may lock it.
        descriptor = file_locks.open_lock(path, shared=True)
    except file_locks.ForeignError as error:
        raise CollectError(f"the GPU cannot be locked: {error}, or set locks.folder") from error
    except OSError as error:
        raise CollectError(f"{path}: the GPU cannot be locked: {error.strerror}; set locks.folder") from error
    try:
        yield GpuLockFile(word, path, descriptor, terms)
    finally:
        os.close(descriptor)


def _late(line: str, terms: LockTerms, words: Sequence[str]) -> CollectError:
    return CollectError(
        f"{line}{_holders(terms, words)}: not free within {terms.wait_s:g} s (locks.wait); see to those "
        "jobs, or set locks.folder to one that only your jobs use"
    )


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


def _describe_holder(what: str) -> str:
    """Return what a lock file says of this process, which holds it."""
    user = str(os.getuid())
    with suppress(KeyError):
        # The user may have no name inside a container.
        user = pwd.getpwuid(os.getuid()).pw_name
    return json.dumps({"pid": os.getpid(), "user": user, "what": what}) + "\n"


def _holders(terms: LockTerms, words: Sequence[str]) -> str:
    """Text in brackets that names the holders of locked GPUs; empty if no lock file names one."""
    said = []
    for word in words:
        with open_slot(word, terms) as file:
            if not file.lock() and (line := _signed(file.descriptor)):
                said.append(f"{word}: {line}")
    return f" ({'; '.join(said)})" if said else ""


def _signed(descriptor: int) -> str:
    try:
        holder = json.loads(file_locks.read_text(descriptor)[:LONGEST])
        words = f"process {int(holder['pid'])} of {holder['user']}, {holder['what']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return "".join(letter for letter in words if letter.isprintable())


# Lets a program start up while another one uses the GPU: it asks for its turn when it needs the GPU.
#
# The lock file of the GPU is opened before the program starts, and all processes of the job get its descriptor. A lock
# belongs to the open file. A lock that is acquired later is therefore held until the last of these processes has ended,
# as if it had been acquired before.

# The variable that makes a program wait for its turn and names the folder. The program creates the first of these files
# there when it needs the GPU, and waits for a lock on the second, which then holds the answer.
TURN = "PROFZOO_TURN"
WANTED, HELD = "gpu-wanted", "gpu-held"
# Seconds between two looks: for the program's request, and for a free GPU, which is idle until the next look.
TURN_PAUSE_S, HELD_PAUSE_S = 0.005, 0.02
# Shorter waits of programs for each other are not reported.
QUIET_S = 60.0


class TurnGate:
    """Waiting point of one program: a lock in a folder, so that waiting costs the running programs no time."""

    def __init__(self, folder: Path) -> None:
        """Prepare the gate; folder: a folder that only this program uses."""
        self._folder = folder
        self._file = (folder / HELD).open("w")
        file_locks.lock_descriptor(self._file.fileno(), wait=True)
        self._lockless = file_locks.explain_missing_locks(self._file.fileno())

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that make a program wait here.

        Raises:
            CollectError: the program would not wait, because the folder has no locks.
        """
        self.check()
        return {TURN: str(self._folder)}

    def check(self) -> None:
        """Check that a program would wait here.

        Raises:
            CollectError: the program would not wait, because the folder has no locks.
        """
        if self._lockless:
            raise CollectError(
                f"{self._folder} is on a file system without locks ({self._lockless}), by which programs wait for "
                "their turn: set TMPDIR to a folder of a local disk, or locks.overlap to false"
            )

    def wanted(self) -> bool:
        """Return whether the program is waiting."""
        return (self._folder / WANTED).exists()

    def open(self, error: str = "") -> None:
        """Let the program go on, or make it end with an error message."""
        json.dump({"error": error}, self._file)
        self.close()

    def close(self) -> None:
        """End the wait; a program that is still waiting fails."""
        self._file.close()


@dataclass
class GpuTurn:
    """The turn of a program on a GPU.

    words: GPUs that are held; empty until the turn begins. descriptors: descriptors of their lock files, locked or not.
    waited_s: seconds that the program has waited.
    """

    words: list[str] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    waited_s: float = 0.0


@contextmanager
def offer_gpu(word: str, folder: Path, waiting: Callable[[str], None], terms: LockTerms) -> Iterator[GpuTurn]:
    """Hold a GPU from the moment when the job's program asks for it until the body ends; folder: the job's folder.

    A program that cannot get the GPU ends with the reason.

    Raises:
        CollectError: the lock file cannot be used, or the folder's file system has no locks.
    """
    with open_slot(word, terms) as file, closing(TurnGate(folder)) as gate:
        gate.check()
        turn, over = GpuTurn(descriptors=[file.descriptor]), threading.Event()

        def give() -> None:
            while not gate.wanted():
                if over.wait(TURN_PAUSE_S):
                    return
            began, why = time.monotonic(), ""
            try:
                if not file.hold(waiting, over, HELD_PAUSE_S, QUIET_S):
                    return
                turn.words.append(word)
            except CollectError as error:
                why = str(error)
            turn.waited_s = time.monotonic() - began
            gate.open(why)

        giver = threading.Thread(target=give)
        giver.start()
        try:
            yield turn
        finally:
            over.set()
            giver.join()


def wait_for_turn(given: MutableMapping[str, str] = os.environ) -> None:
    """Wait for the turn of this program; returns at once if it need not wait.

    given: environment of this process.

    Raises:
        CollectError: the job has ended, or could not get the GPU.
    """
    if not given.get(TURN):
        return
    folder = Path(given[TURN])
    (folder / WANTED).touch()
    with (folder / HELD).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        said = file.read()
    if not said:
        raise CollectError("the job of this program has ended before its turn")
    if why := json.loads(said)["error"]:
        raise CollectError(why)
