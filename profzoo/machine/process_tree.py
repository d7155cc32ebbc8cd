"""Finds and ends the processes below this one, whatever their session."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

PAUSE_S = 0.05
# Largest number of searches while the kernel says that there is a process and none is found.
LOOKS = 50
# Options of prctl(2): the signal when the parent dies, and whether orphans below a process become its children.
PDEATHSIG, CHILD_SUBREAPER = 1, 36
# States in /proc of processes that have ended and have not been reaped yet.
ENDED = "ZX"
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans(orphans: bool) -> None:
    """Set whether orphaned processes below this one become its children, so that it can find them."""
    _libc.prctl(CHILD_SUBREAPER, int(orphans))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _libc.prctl(PDEATHSIG, signal.SIGKILL)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the given parent ends, or now if it has ended already."""
    die_with_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_processes(
    before: Collection[int],
    stages: Collection[tuple[float, int]],
    wait: Callable[[float], None] = time.sleep,
) -> list[int]:
    """End the processes below this one except those in `before`; returns the processes that remain.

    stages: pairs (seconds, signal), in order: a signal to send, 0 for none, and the time that the processes get to end.
    wait: function that waits for a number of seconds.
    """
    left: list[int] = list_alive(before)
    for seconds, number in stages:
        deadline, told = time.monotonic() + seconds, set[int]()
        while left:
            for process in set(left) - told if number else ():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            told.update(left)
            if time.monotonic() >= deadline:
                break
            wait(PAUSE_S)
            left = list_alive(before)
    return left


def list_alive(before: Collection[int]) -> list[int]:
    """Living processes below this one, except those in `before`; reaps ended ones."""
    for _ in range(LOOKS):
        found = _seen(before)
        # A process is missed if its parent ends while /proc is read. Only the kernel knows that no process is left.
        if found or before or not _has_children():
            break
    return found


def _has_children() -> bool:
    """Whether this process has any child, ended or not; an adopting process has one while any descendant lives."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _seen(before: Collection[int]) -> list[int]:
    found = []
    for process, state in list_descendants().items():
        if process in before:
            continue
        if state not in ENDED:
            found.append(process)
            continue
        with suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
    return sorted(found)


def list_descendants(root: int | None = None) -> dict[int, str]:
    """Processes below this one with their state, as in /proc; root: another one instead."""
    children: dict[int, list[int]] = {}
    states = {}
    for process in running_processes():
        if fields := read_stat(process):
            states[process] = fields[0]
            children.setdefault(int(fields[1]), []).append(process)
    # Add processes that were adopted while /proc was read.
    for child in _adopted() - set(children.get(os.getpid(), ())):
        states.setdefault(child, "?")
        children.setdefault(os.getpid(), []).append(child)
    found, waiting = {}, [root or os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found[child] = states[child]
            waiting.append(child)
    return found


def _adopted() -> set[int]:
    """Children of this process, if the kernel lists them."""
    found = set[int]()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return found


def running_processes() -> list[int]:
    """All processes visible from here."""
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def read_stat(process: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name: state, parent, and so on; empty if there is no such process."""
    try:
        # The name before these fields, in brackets, may contain any character.
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def is_alive(process: int) -> bool:
    """Whether the process exists and has not ended."""
    fields = read_stat(process)
    return bool(fields) and fields[0] not in ENDED


def process_identity(process: int) -> str:
    """Return an identity of a process that a later process with its number cannot have; empty if it has ended.

    It consists of number and start time. Only processes in the same PID namespace can compare numbers, so it also names
    the namespace.
    """
    fields, numbers = read_stat(process), Path("/proc/self/ns/pid").stat().st_ino
    return f"{process}:{fields[19]}:{numbers}" if fields and fields[0] not in ENDED else ""
