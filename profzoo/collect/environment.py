"""Selects the environment variables that a measured program gets, and those whose change measures it again.

Each program starts with the variables of a fixed list, as profilers' reports embed their values. Scripts and models of
the user's own get all others inside their process (`profzoo.machine.job_child`), except those that would
disturb the measurement. Values of listed variables, and digests of others, are part of the job text, like the user's
settings.
"""

import fnmatch
import functools
import json
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from profzoo.cell import secret_detection
from profzoo.errors import CollectError, say
from profzoo.machine import file_locks, gpu_slots, job_child, job_limits, processes, scratch_folder
from profzoo.machine.gpu_slots import GpuTurn, HeldGpus, LockTerms
from profzoo.machine.gpus import VISIBLE
from profzoo.machine.processes import ProcessLimits
from profzoo.records import digests

if TYPE_CHECKING:
    from profzoo.cell.job_types import Job

# The lists: of the variables that each program starts with, by the page that describes them; and of what else reaches
# the user's own programs.
FILES = ("environment.yaml", "own_environment.yaml")
OF_SEVERAL_NODES = ("slurm", "kubernetes")
# Key of the variables within a group that do not change measurements.
APART, ALL = "apart", "all"
# Lists of patterns.
WITHHELD, COMPARED, IGNORED = "withheld", "compared", "ignored"
# Variable that carries what was planned from the planning process to all processes that run jobs, on any node.
PASSED = "PROFZOO_VARIABLES"
# Parts of it: variables that change any measurement; those that change own programs; digests of all others.
ANY, OWN, REST = "any", "own", "rest"
ZOO = "models."
# Number of names that a message shows for each reason.
SHOWN = 3


@functools.cache
def allowed_names(nodes: int = 1) -> frozenset[str]:
    """Names of the variables that any program starts with; nodes: number of nodes of the job.

    >>> [one in allowed_names(2) for one in ("PATH", "SLURM_JOB_ID", "SLURM_JWT")], "SLURM_JOB_ID" in allowed_names()
    ([True, True, False], False)
    """
    known = [group["names"].split() for name, group in _groups().items() if nodes > 1 or name not in OF_SEVERAL_NODES]
    return frozenset(one for group in known for one in group)


@functools.cache
def measurement_variables() -> frozenset[str]:
    """Names of these variables that change what is measured.

    >>> asked = ("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PATH", "CUDA_VISIBLE_DEVICES")
    >>> [one in measurement_variables() for one in asked]
    [True, True, True, False, False]
    """
    found = set()
    for group in _groups().values():
        apart = group.get(APART, "")
        found |= set() if apart == ALL else {*group["names"].split()} - {*apart.split()}
    return frozenset(found)


def is_own(cell: Mapping[str, Any]) -> bool:
    """Whether a cell's program is a script or a model of the user's own, which gets the user's environment.

    >>> [is_own(cell) for cell in ({"command": "python train.py"}, {"module": "mine"}, {"module": "models.lstm"}, {})]
    [True, True, False, False]
    """
    return "command" in cell or not str(cell.get("module", ZOO)).startswith(ZOO)


def select_environment(given: Mapping[str, str], extra: Sequence[str], nodes: int = 1) -> dict[str, str]:
    """Variables that a program starts with; extra: names of further variables."""
    return {key: value for key, value in given.items() if key in allowed_names(nodes) or key in extra}


def own_variables(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """All further variables that reach a program of the user's own.

    >>> sorted(own_variables({"MODE": "fast", "LD_PRELOAD": "x.so", "RANK": "3", "PATH": "p"}, []))
    ['MODE']
    """
    started = {*allowed_names(2), *extra}
    return {name: value for name, value in given.items() if name not in started and not _is_listed(WITHHELD, name)}


def withheld_variables(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, list[str]]:
    """Names of the variables that do not reach programs of the user's own, by the reason; not those of the workflow.

    >>> withheld_variables({"LD_PRELOAD": "x.so", "PROFZOO_OWNER": "1", "MODE": "fast"}, [])
    {'the library would be loaded into the profiler as well': ['LD_PRELOAD']}
    """
    known = {name for name in given if name not in {*allowed_names(2), *extra}}
    # The last entry of the list is of the workflow's own variables.
    *others, _ = _lists()[WITHHELD]
    found = {one["why"]: [name for name in sorted(known) if _pattern(one["names"]).match(name)] for one in others}
    return {why: names for why, names in found.items() if names}


def describe_withheld(given: Mapping[str, str], extra: Sequence[str]) -> str:
    """One line about the variables that do not reach programs of the user's own; empty if there are none."""
    found = withheld_variables(given, extra)
    shown = {why: [*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])] for why, names in found.items()}
    told = "; ".join(f"{', '.join(names)} ({why})" for why, names in shown.items())
    return f"these variables do not reach your programs: {told}; what `variables` names does" if told else ""


def measured_variables(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """Values of the variables that change any measurement, and digests of the extra variables.

    The user's own variables may hold secrets, and these facts appear in sidecars and command lines.

    >>> measured_variables({"CUDA_LAUNCH_BLOCKING": "1", "HOME": "/home/me"}, [])
    {'CUDA_LAUNCH_BLOCKING': '1'}
    >>> measured_variables({"MODE": "fast"}, ["MODE", "OTHER"])["MODE"][:13]
    'sha256:33e214'
    """
    own = {name: given[name] for name in sorted(measurement_variables()) if name in given}
    return own | {name: variable_digest(name, given[name]) for name in sorted(extra) if name in given}


def compared_variables(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """Digests of the variables besides that change measurements of the user's own programs.

    >>> list(compared_variables({"OMPI_MCA_plm": "isolated", "MODE": "fast", "NCCL_TOKEN": "x"}, []))
    ['OMPI_MCA_plm']
    """
    return _digests({name: value for name, value in own_variables(given, extra).items() if _is_listed(COMPARED, name)})


def read_variables(read: Mapping[str, str | None], extra: Sequence[str] = ()) -> dict[str, str | None]:
    """Of the variables that a program has read, those whose change measures it again, where its values were planned.

    read: digests by name, None for a variable that is not set. A node of a cluster may have values of its own.

    >>> read_variables({"MODE": None, "TERM": None, "SOME_TOKEN": "sha256:0", "NCCL_ALGO": None})
    {'MODE': None}
    """
    planned = _planned(extra)[REST]
    known = {name: one for name, one in read.items() if name not in extra and is_compared(name)}
    return {name: one for name, one in known.items() if planned.get(name) == one}


def is_compared(name: str) -> bool:
    """Whether a variable counts where a program has read it: it is in no list, and no secret by its name."""
    listed = name in allowed_names(2) or any(_is_listed(kind, name) for kind in (WITHHELD, COMPARED, IGNORED))
    return not listed and not secret_detection.is_secret_key(name, "x")


def variable_digest(name: str, value: str) -> str:
    """Digest of a variable, as in job texts and records."""
    return digests.text_digest(f"{name}={value}")


def export_environment(extra: Sequence[str]) -> None:
    """Export to all jobs of this run, on any node, the environment that the run was planned in."""
    os.environ[PASSED] = json.dumps(_describe(os.environ, extra), sort_keys=True)


def planned_variables(extra: Sequence[str], own: bool = False) -> dict[str, str]:
    """Variables of a job's text when the run was planned, by name; outside of a run, of this process.

    own: whether the job's program is the user's own.
    """
    found = _planned(extra)
    return {**(found[OWN] if own else {}), **found[ANY]}


def rest_digests() -> dict[str, str]:
    """Digests of the variables that count only where a program has read them, as the run was planned."""
    return _planned(())[REST]


def _planned(extra: Sequence[str]) -> dict[str, dict[str, str]]:
    given = os.environ.get(PASSED)
    return json.loads(given) if given else _describe(os.environ, extra)


def _describe(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, dict[str, str]]:
    rest = {name: value for name, value in own_variables(given, extra).items() if is_compared(name)}
    compared = compared_variables(given, extra)
    return {ANY: measured_variables(given, extra), OWN: compared, REST: _digests(rest)}


def _digests(found: Mapping[str, str]) -> dict[str, str]:
    """Digests of variables by name, without those that are secrets: guesses could reverse a digest of a password."""
    return {
        name: variable_digest(name, value)
        for name, value in sorted(found.items())
        if not secret_detection.is_secret_key(name, value) and not any(secret_detection.secrets_by_pattern(value))
    }


def _is_listed(kind: str, name: str) -> bool:
    return any(_pattern(one["names"]).match(name) for one in _lists()[kind])


@functools.cache
def _pattern(names: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, names.split())))


def _groups() -> Mapping[str, Mapping[str, str]]:
    return yaml.safe_load(Path(__file__).with_name(FILES[0]).read_text())


@functools.cache
def _lists() -> Mapping[str, Sequence[Mapping[str, str]]]:
    found: Mapping[str, Sequence[Mapping[str, str]]] = yaml.safe_load(Path(__file__).with_name(FILES[1]).read_text())
    return found


# Prepares the surroundings of a collecting command: environment, threads, held GPUs, and supervised processes.
#
# This code influences the measurement, unlike the code that runs before and after the command.


def thread_variables(cores: int, gpus: int, processes: int, given: Collection[str] = ()) -> dict[str, str]:
    """Variables that limit the CPU threads of torch; none where the user has set one of them.

    gpus: GPUs of the machine; processes: processes of the job; given: names of the user's variables.

    Half of the cores are left to other jobs. With one thread per core, each operation would wait for the thread whose
    core is busy: collating a batch then takes tens of milliseconds instead of half a millisecond. Without a GPU, all
    cores compute the model.

    >>> [thread_variables(16, *rest)["OMP_NUM_THREADS"] for rest in ((1, 1), (4, 2), (0, 2))]
    ['8', '2', '8']
    """
    count = str(max(cores // (2 * gpus or processes), 1))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {} if {*names} & {*given} else dict.fromkeys(names, count)


def start_variables(
    asked: Mapping[str, str], extra: Sequence[str], nodes: int, gpus: int, count: int
) -> dict[str, str]:
    """Variables that a job's program starts with, besides those that each job has of its own.

    asked: planned values; extra: names of further variables; gpus: GPUs of the machine; count: processes of the job.
    """
    seen = select_environment(os.environ, extra, nodes)
    # Set the planned values, whatever this node has; the user's own variables are known as digests only.
    seen = {name: value for name, value in seen.items() if name in asked or name not in measurement_variables()}
    seen |= {name: value for name, value in asked.items() if name in measurement_variables()}
    return seen | thread_variables(len(os.sched_getaffinity(0)), gpus, count, seen)


def run_logged(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    guard: ProcessLimits = processes.NOTHING,
    shown: Sequence[str] = (),
) -> int:
    """Run the command with its output in the log, end all processes that it started, and return its exit code.

    shown: the command that the log begins with, if it is another that does the same.

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
        file.write(f"$ {shlex.join(shown or command)}\n".encode())
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
    return gpu_slots.hold_gpus(count, words, say, _terms(what))


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
    alone = len(words) == cell.get("gpus", 1) == cell.get("nodes", 1) == 1 and not (several or sampled)
    return job_limits.read_limits().overlap and alone and job["tool"] not in ("peaks", "probe", "links")


def uses_compile(job: "Job") -> bool:
    """Whether any program of the job uses torch.compile for its steps.

    >>> uses_compile({"cell": {"compile": False}, "trials": {"candidates": {"fast": ["compile=default"]}}})
    True
    """
    cells = [job["cell"], *job.get("sides", {}).values()]
    tried = [word for words in job.get("trials", {}).get("candidates", {}).values() for word in words]
    return any(cell.get("compile") for cell in cells) or any(word.startswith("compile=") for word in tried)


@contextmanager
def prepare_job(
    job: "Job", candidates: Sequence[str], planned_s: float | None = None, apart: bool = False, sampled: bool = False
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
    seen = start_variables(job.get("variables", {}), job["environment"], nodes, len(candidates), count)
    what = f"{job['tool']} of {cell.get('model', 'the GPU')} {cell.get('phase', '')}".strip()
    seconds = job_limits.read_limits().seconds(job["tool"], planned_s)
    with job_child.watch_parent():
        if found := scratch_folder.sweep_abandoned():
            say(f"ended {len(found)} process(es) of a job that was killed")
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
                seen |= {gpu_slots.TURN: str(folder)} if late else {}
                over = "" if seconds is None else job_limits.format_timeout(job["tool"], seconds)
                turn = gpu_slots.offer_gpu(candidates[0], folder, say, _terms(what)) if late else nullcontext(mine)
                with turn as held:
                    yield seen, held, ProcessLimits(held.descriptors, kept, str(folder), seconds, over, apart)
            finally:
                scratch_folder.remove_scratch(folder)
                for descriptor in kept:
                    os.close(descriptor)
