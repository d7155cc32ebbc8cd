"""Runs a command of which nothing outlives the call: what it started ends with it, however it or this process ends."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# Seconds that processes get: to end by themselves after the command did, after a SIGTERM, and after a SIGKILL.
LINGER_S, ASKED_S, KILLED_S = 2.0, 10.0, 60.0
PAUSE_S = 0.05
HEEDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Of prctl(2): the signal that a process gets when its parent dies, and whether orphans below it become its children.
PDEATHSIG, CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def run(command: Sequence[str], output: BinaryIO, env: Mapping[str, str]) -> int:
    """Run the command with what it prints in the file; its exit code, once no process that it started is left.

    A SIGTERM, SIGHUP or SIGINT ends them all too, and then this process with 128 and the signal's number; what does
    not heed a SIGTERM is killed.

    Raises:
        SystemExit: a signal came.
    """
    before, patience = set(_descendants()), 0.0
    with _adopting(), _heeding():
        try:
            code = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                start_new_session=True, preexec_fn=_end_with_parent,
            ).wait()  # fmt: skip
            patience = LINGER_S
            return code
        finally:
            # A second signal must not cut this short, or a process would be left on the GPU.
            for number in HEEDED:
                signal.signal(number, signal.SIG_IGN)
            _end(before, patience)


def _end_with_parent() -> None:
    # Where this process is killed itself, nobody is left to end the others.
    _libc.prctl(PDEATHSIG, signal.SIGKILL)


@contextmanager
def _adopting() -> Iterator[None]:
    """Processes whose parents ended are children of this one, so that it can find them whatever their session."""
    _libc.prctl(CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _libc.prctl(CHILD_SUBREAPER, 0)


@contextmanager
def _heeding() -> Iterator[None]:
    """Signals that end this process raise SystemExit; those that it was told to ignore stay ignored."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.getsignal(number) for number in HEEDED}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end(before: Collection[int], patience: float) -> None:
    """End the processes below this one but for those of before: after some patience by SIGTERM, then by SIGKILL."""
    for seconds, number in ((patience, 0), (ASKED_S, signal.SIGTERM), (KILLED_S, signal.SIGKILL)):
        deadline, told = time.monotonic() + seconds, set[int]()
        while (left := _left(before)) and time.monotonic() < deadline:
            for process in set(left) - told if number else ():
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            told.update(left)
            time.sleep(PAUSE_S)
        if not left:
            return
    print(f"profzoo: processes {sorted(left)} do not end; a GPU may still be in use", file=sys.stderr)


def _left(before: Collection[int]) -> list[int]:
    """Processes below this one that are alive, but for those of before; those that ended are forgotten."""
    found = []
    for process, state in _descendants().items():
        if process in before:
            continue
        if state not in "ZX":
            found.append(process)
            continue
        with suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
    return found


def _descendants() -> dict[int, str]:
    """Processes below this one, each with its state as in /proc."""
    children: dict[int, list[int]] = {}
    states = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # It may end meanwhile.
        with suppress(OSError):
            # A program's name, in brackets, may hold anything.
            state, parent, *_ = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            states[int(folder.name)] = state
            children.setdefault(int(parent), []).append(int(folder.name))
    found, waiting = {}, [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found[child] = states[child]
            waiting.append(child)
    return found
