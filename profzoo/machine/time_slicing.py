"""Runs compared programs at once, or time-slices them by a few steps each, so that disturbances affect all alike.

Programs that run at once share the cores: each computes with so many threads that all find room. They are disturbed at
the same moments, but not on the same cores. Therefore a step counts the time that its thread had a core.
"""

import os
import select
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Protocol

from profzoo.errors import CollectError

# The variable that makes a program run in shifts; it holds the descriptor of the socket to the job.
SHIFT = "PROFZOO_SHIFT"
OVER, GO = b".", b">"
PAUSE_S = 0.05
# The variable that holds the number of programs that run at once.
BESIDE = "PROFZOO_BESIDE"


def count_threads(most: int, given: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of threads of a program that runs beside others, at most `most`; None if it does not run so.

    >>> count_threads(8, {}), count_threads(8, {BESIDE: "1000"})
    (None, 1)
    """
    beside = int(given.get(BESIDE) or 0)
    return min(max(len(os.sched_getaffinity(0)) // beside, 1), most) if beside else None


class Running(Protocol):
    """A process that can be asked whether it has ended."""

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""


class ShiftGiver:
    """Gives one program its shifts; the first begins at once, or when the program gets its turn."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that connect the program to this object."""
        return {SHIFT: str(self._theirs.fileno())}

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that the program has to inherit."""
        return [self._theirs.fileno()]

    def go(self) -> None:
        """Begin another shift."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._mine.send(GO)

    def over(self, process: Running) -> bool:
        """Wait until the shift ends; True if the program waits for another, False if it has ended."""
        while not select.select([self._mine], [], [], PAUSE_S)[0]:
            if process.poll() is not None:
                return False
        try:
            return self._mine.recv(1) == OVER
        except ConnectionResetError:
            return False

    def close(self) -> None:
        """Begin no more shifts; a waiting program is told so and fails."""
        self._mine.close()
        self._theirs.close()


class ShiftWorker:
    """The program's side: it runs in shifts."""

    def __init__(self, own: socket.socket) -> None:
        self._own = own

    def rest(self) -> None:
        """End the shift, and return once the next one begins.

        Raises:
            CollectError: the job has ended.
        """
        try:
            self._own.send(OVER)
            said = self._own.recv(1)
        except (BrokenPipeError, ConnectionResetError):
            said = b""
        if said != GO:
            raise CollectError("the job of this program has ended before its next shift")


def find_worker(given: MutableMapping[str, str] = os.environ) -> ShiftWorker | None:
    """Worker of this process, from its environment; None if it does not run in shifts."""
    if not (number := given.get(SHIFT)):
        return None
    own = socket.socket(fileno=os.dup(int(number)))
    # Programs that this process starts must not inherit the socket.
    os.set_inheritable(int(number), False)
    return ShiftWorker(own)
