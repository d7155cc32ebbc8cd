"""Prepares the surroundings of a collecting command: environment, threads, held GPUs, and supervised processes.

This code influences the measurement, unlike the code that runs before and after the command.
"""

import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.collect.environment import measurement_variables, select_environment
from profzoo.errors import CollectError
from profzoo.machine import (
    file_locks,
    gpu_slots,
    gpu_turns,
    job_child,
    job_limits,
    orphan_guard,
    processes,
    scratch_folder,
)
from profzoo.machine.gpu_slots import HeldGpus, LockTerms
from profzoo.machine.gpu_turns import GpuTurn
from profzoo.machine.gpus import VISIBLE
from profzoo.machine.processes import ProcessLimits

if TYPE_CHECKING:
    from profzoo.cell.job_types import Job


def thread_variables(cores: int, gpus: int, processes: int) -> dict[str, str]:
    """Variables that limit the CPU threads of torch; gpus: GPUs of the machine; processes: processes of the job.

    Half of the cores are left to other jobs. With one thread per core, each operation would wait for the thread whose
    core is busy: collating a batch then takes tens of milliseconds instead of half a millisecond. Without a GPU, all
    cores compute the model.

    >>> [thread_variables(16, *rest)["OMP_NUM_THREADS"] for rest in ((1, 1), (4, 2), (0, 2))]
    ['8', '2', '8']
    """
    count = str(max(cores // (2 * gpus or processes), 1))
    return {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}


def run_logged(
    command: Sequence[str], log: Path, env: Mapping[str, str], guard: ProcessLimits = processes.NOTHING
) -> int:
    """Run the command with its output in the log, end all processes that it started, and return its exit code.

    Raises:
        CollectError: the path of the log is not a regular file.
    """
    # A new file: an earlier job that is still ending keeps printing into its own old file.
    with suppress(FileNotFoundError):
        found = log.lstat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            raise CollectError(
                f"{log} is {file_locks.describe_file_kind(found)}, where the log of a job is to be: remove it"
            )
        log.unlink()
    # Do not follow a link.
    with log.open("xb") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        return processes.run_command(command, file, env, guard)


def hold_gpus(count: int, words: Sequence[str], what: str = "") -> AbstractContextManager[HeldGpus]:
    """Hold this many GPUs while the body runs (none on a machine without GPUs), and report any wait.

    what: purpose of the hold, shown to waiting jobs.

    Raises:
        CollectError: the machine has fewer GPUs, or they are not free in time.
    """
    if not words:
        return nullcontext(HeldGpus([], []))
    if count > len(words):
        raise CollectError(f"gpus = {count}, and {len(words)} visible here: lower gpus, or run where there are more")
    return gpu_slots.hold_gpus(count, words, _say, _terms(what))


def _terms(what: str) -> LockTerms:
    told = job_limits.read_limits()
    return LockTerms(told.locks, told.wait_s, what)


def overlaps_start(job: "Job", words: Sequence[str], sampled: bool = False) -> bool:
    """Whether the job's program may start first and wait for the only GPU by itself.

    sampled: whether the tool samples the GPU; such a tool samples from the program's start, so it must hold the GPU
    then. A job without a cell starts at once anyway. With several processes in turn, the later processes would start
    while the first one is measured.
    """
    cell, several = job["cell"], bool({"order", "repeats", "trials"} & set(job))
    alone = len(words) == cell.get("gpus", 1) == cell.get("nodes", 1) == 1
    return (
        job_limits.read_limits().overlap
        and alone
        and not (several or sampled)
        and job["tool"] not in ("peaks", "probe", "links")
    )


def uses_compile(job: "Job") -> bool:
    """Whether any program of the job uses torch.compile for its steps.

    >>> uses_compile({"cell": {"compile": False}, "trials": {"candidates": {"fast": ["compile=default"]}}})
    True
    """
    cells = [job["cell"], *job.get("sides", {}).values()]
    tried = [word for words in job.get("trials", {}).get("candidates", {}).values() for word in words]
    return any(cell.get("compile") for cell in cells) or any(word.startswith("compile=") for word in tried)


def _say(line: str) -> None:
    print(f"profzoo: {line}", file=sys.stderr, flush=True)


@contextmanager
def prepare_job(
    job: "Job",
    candidates: Sequence[str],
    planned_s: float | None = None,
    apart: bool = False,
    sampled: bool = False,
) -> Iterator[tuple[dict[str, str], HeldGpus | GpuTurn, ProcessLimits]]:
    """Yield the environment of a job's command, the GPUs held for it, and the limits of its processes.

    candidates: GPUs of this machine. planned_s: seconds that a plan estimates, or None. apart: whether the processes
    see no other processes of the machine. sampled: whether the job's tool samples the GPU.

    Raises:
        CollectError: the machine has fewer GPUs than the job needs, or they are not free in time.
    """
    cell = job["cell"]
    count, nodes = cell.get("gpus", 1), cell.get("nodes", 1)
    # On several nodes Slurm assigns the GPUs, and this node's scratch folder does not exist on the others.
    several = nodes > 1
    seen = select_environment(os.environ, job["environment"], nodes)
    # Set the planned values, whatever this node has; the user's own variables are known as digests only.
    asked = job.get("variables", {})
    seen = {name: value for name, value in seen.items() if name in asked or name not in measurement_variables()}
    seen |= {name: value for name, value in asked.items() if name in measurement_variables()}
    seen |= thread_variables(len(os.sched_getaffinity(0)), len(candidates), count)
    what = f"{job['tool']} of {cell.get('model', 'the GPU')} {cell.get('phase', '')}".strip()
    seconds = job_limits.read_limits().seconds(job["tool"], planned_s)
    with orphan_guard.watch_parent():
        if found := scratch_folder.sweep_abandoned():
            _say(f"ended {len(found)} process(es) of a job that was killed")
        what, late = f"{what} in {Path.cwd()}", overlaps_start(job, candidates, sampled)
        with hold_gpus(count, [] if several or late else candidates, what) as mine:
            folder, kept = scratch_folder.make_scratch()
            try:
                # A TMPDIR per job: ncu locks a file in TMPDIR, but jobs on different GPUs need not wait for each other.
                own = {} if several else {"TMPDIR": str(folder), **job_child.job_variables(folder)}
                # A shared compile cache: compiling dominates short jobs, and tuning anew may choose other kernels.
                seen = (scratch_folder.shared_compile_cache() if own and uses_compile(job) else {}) | seen | own
                words = candidates if late else mine.words
                seen |= {VISIBLE: ",".join(words)} if words else {}
                seen |= {gpu_turns.TURN: str(folder)} if late else {}
                over = "" if seconds is None else job_limits.format_timeout(job["tool"], seconds)
                turn = gpu_turns.offer_gpu(candidates[0], folder, _say, _terms(what)) if late else nullcontext(mine)
                with turn as held:
                    yield seen, held, ProcessLimits(held.descriptors, kept, str(folder), seconds, over, apart)
            finally:
                scratch_folder.remove_scratch(folder)
                for descriptor in kept:
                    os.close(descriptor)
