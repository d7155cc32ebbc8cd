"""Lets a program start up while another one uses the GPU: it asks for its turn when it needs the GPU.

The lock file of the GPU is opened before the program starts, and all processes of the job get its descriptor. A lock
belongs to the open file. A lock that is acquired later is therefore held until the last of these processes has ended,
as if it had been acquired before.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from profzoo.errors import CollectError
from profzoo.machine import file_locks, gpu_slots
from profzoo.machine.gpu_slots import LockTerms

# The variable that makes a program wait for its turn and names the folder. The program creates the first of these files
# there when it needs the GPU, and waits for a lock on the second, which then holds the answer.
TURN = "PROFZOO_TURN"
WANTED, HELD = "gpu-wanted", "gpu-held"
# Seconds between two looks: for the program's request, and for a free GPU, which is idle until the next look.
PAUSE_S, HELD_PAUSE_S = 0.005, 0.02
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
    with gpu_slots.open_slot(word, terms) as file, closing(TurnGate(folder)) as gate:
        gate.check()
        turn, over = GpuTurn(descriptors=[file.descriptor]), threading.Event()

        def give() -> None:
            while not gate.wanted():
                if over.wait(PAUSE_S):
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
