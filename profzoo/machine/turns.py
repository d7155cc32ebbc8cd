"""Lets a job's program start up while another job has the GPU: it says when it wants it, and goes on once it is held.

The lock's file is opened, and its descriptor handed to all processes of the job, before the program starts. A lock is
of the open file, so that one which is taken later is held exactly as long as one that was taken before: until the last
of these processes has ended.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from profzoo.errors import CollectError
from profzoo.machine import gpu_slots, scratch
from profzoo.machine.gpu_slots import Terms

# Tells a program that it is to wait for its turn; what it leaves in the job's folder then, and what is the answer.
TURN = "PROFZOO_TURN"
WANTED, HELD = "gpu-wanted", "gpu-held"
# Of those who wait for each other in one folder, and of those who wait for the GPU, which idles as long.
PAUSE_S, HELD_PAUSE_S = 0.005, 0.02
# What programs wait for each other is nothing to tell of, unless it takes longer.
QUIET_S = 60.0


@dataclass
class Turn:
    """words: the GPUs that are held, from when they are. descriptors: those of their locks, held or not. waited_s: how
    long the program has waited."""

    words: list[str] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    waited_s: float = 0.0


@contextmanager
def offered(word: str, folder: Path, waiting: Callable[[str], None], terms: Terms) -> Iterator[Turn]:
    """Hold a GPU as soon as the job's program wants it, until the body ends; folder: of the job.

    A program that cannot have it is told why, and ends.

    Raises:
        CollectError: the lock's file cannot be used.
    """
    with gpu_slots.opened(word, terms) as file:
        turn, over = Turn(descriptors=[file.descriptor]), threading.Event()

        def give() -> None:
            while not (folder / WANTED).exists():
                if over.wait(PAUSE_S):
                    return
            began, answer = time.monotonic(), {}
            try:
                if not file.hold(waiting, over, HELD_PAUSE_S, QUIET_S):
                    return
                turn.words.append(word)
            except CollectError as error:
                answer = {"error": str(error)}
            turn.waited_s = time.monotonic() - began
            new = folder / f"{HELD}.new"
            new.write_text(json.dumps(answer))
            new.rename(folder / HELD)

        giver = threading.Thread(target=give)
        giver.start()
        try:
            yield turn
        finally:
            over.set()
            giver.join()


def take(given: MutableMapping[str, str] = os.environ) -> None:
    """In a program: return once the GPU is held for its job; at once where it was from the start.

    Raises:
        CollectError: it cannot be.
    """
    if not given.get(TURN):
        return
    folder = Path(given[scratch.JOB])
    (folder / WANTED).touch()
    while not (folder / HELD).exists():
        time.sleep(PAUSE_S)
    if why := json.loads((folder / HELD).read_text()).get("error"):
        raise CollectError(why)
