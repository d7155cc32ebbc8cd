"""What a collecting command runs in: its environment and threads, the GPUs held for it, and the tree of its processes.

A part of what is measured, unlike what is done before and after.
"""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from profzoo.collect.environment import environment
from profzoo.errors import CollectError
from profzoo.machine import gpu_slots, processes
from profzoo.machine.gpus import VISIBLE


def threads(cores: int, gpus: int, processes: int) -> dict[str, str]:
    """How many CPU threads torch may use, in a job of so many processes that takes its GPUs from among so many.

    Half of the cores are left to the jobs that run beside: an operation on as many threads as there are cores waits
    for the one that finds its core taken, and collating a batch then takes tens of milliseconds instead of half a one.
    Without a GPU all cores compute the model.

    >>> threads(16, 1, 1)["OMP_NUM_THREADS"], threads(16, 4, 2)["OMP_NUM_THREADS"], threads(16, 0, 2)["OMP_NUM_THREADS"]
    ('8', '2', '8')
    """
    count = str(max(cores // (2 * gpus or processes), 1))
    return {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}


def run(command: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """Run the command with its output in the log; its exit code. Nothing that it started outlives this."""
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        return processes.run(command, file, env)


def own_gpus(count: int, words: Sequence[str]) -> AbstractContextManager[list[str]]:
    """So many of the GPUs, held while the body runs; none where there is none. Says so where it has to wait for one.

    Raises:
        CollectError: there are fewer.
    """
    if not words:
        return nullcontext([])
    if count > len(words):
        raise CollectError(f"gpus = {count}, and {len(words)} visible here: lower gpus, or run where there are more")
    return gpu_slots.taken(count, words, lambda line: print(f"profzoo: {line}", file=sys.stderr, flush=True))


@contextmanager
def of_job(job: Mapping[str, Any], candidates: Sequence[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment of a job's command and the GPUs held for it, while the body runs; candidates: GPUs that are here.

    Raises:
        CollectError: there are fewer than the job takes.
    """
    count, nodes = job["cell"].get("gpus", 1), job["cell"].get("nodes", 1)
    # Slurm starts processes on other nodes, where it says which GPUs are theirs, and where the scratch is not.
    several = nodes > 1
    seen = environment(os.environ, job["environment"], nodes)
    seen |= threads(len(os.sched_getaffinity(0)), len(candidates), count)
    with (
        own_gpus(count, [] if several else candidates) as mine,
        tempfile.TemporaryDirectory(prefix="profzoo-") as scratch,
    ):
        # ncu waits for others at a lock in TMPDIR, which jobs on different GPUs need not do.
        seen |= {} if several else {"TMPDIR": scratch}
        yield seen | ({VISIBLE: ",".join(mine)} if mine else {}), mine
