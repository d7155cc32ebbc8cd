"""Checks of the machine for `snakemake doctor` that concern every tool, and the form of their results."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profzoo import formatting, versions
from profzoo.errors import ConfigError
from profzoo.machine import choose_lock, external_programs, gpus

# Seconds: longer than importing torch takes on a slow disk, and longer than ncu or nsys need for an empty program.
PATIENCE_S = 300
# The number in what a program prints as its version.
NUMBER = re.compile(r"\d+(\.\d+)+")
# CUDA's messages about errors in kernels; after such an error the process can no longer use the GPU.
ON_GPU = (
    (
        r"illegal memory access|misaligned address|illegal address",
        "a kernel reads or writes outside its tensors: run the log's command under `compute-sanitizer`, which names it",
    ),
    (
        r"device-side assert",
        "most often an index out of range, for example of an embedding or of a loss's classes: the log names the "
        "kernel, and a run with device=cpu names the line",
    ),
)


@dataclass(frozen=True)
class Finding:
    """Result of one check; advice: what to do, None if nothing is missing."""

    name: str
    found: str
    advice: str | None = None


# A check returns None where it has nothing to say, because another check tells what is missing.
Check = Callable[[], Finding | None]


def ask_job_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in the Python interpreter that jobs use, and return the finished process."""
    return external_programs.ask_program([sys.executable, "-c", code], PATIENCE_S)


def find_usable_gpus() -> list[dict[str, str]]:
    """List the GPUs that a job may use; empty if they cannot be listed, which the check of GPUs reports."""
    try:
        return gpus.list_visible_gpus(os.environ)
    except ConfigError:
        return []


def check_on_path(program: str, install: str, tried: Sequence[str] = ()) -> Finding:
    """Check that a program is on PATH and find its version.

    install: advice if it is missing. tried: beginnings of the versions with which profzoo was tried.
    """
    if not shutil.which(program):
        return Finding(program, "not on PATH", install)
    found = external_programs.read_version(program) or "no version"
    number = NUMBER.search(found)
    if not tried or not number:
        return Finding(program, found)
    known = any(number[0].startswith(f"{one}.") for one in tried)
    return Finding(program, f"{number[0]} ({'' if known else 'not tried; '}tried: {', '.join(tried)})")


def match_cause(printed: str, causes: Sequence[tuple[str, str]]) -> str | None:
    """Return the explanation of the first pattern found in the text; None if no pattern is found.

    causes: pairs of a regular expression and its explanation.
    """
    return next((advice for pattern, advice in causes if re.search(pattern, printed)), None)


# Checks of this machine that concern every tool: shared memory, disk space, and who may look into other processes.

PROC = Path("/proc")
# Below this, loading data or exchanging it between GPUs may fail. Docker gives a container 64 MB. Sources: PyTorch's
# README ("shared memory segment size that container runs with is not enough"), and NCCL's troubleshooting, which asks
# for `--shm-size=1g`.
SHARED_BYTES = 10**9
# Numbers of Linux capabilities. Source: include/uapi/linux/capability.h.
SYS_PTRACE, SYS_ADMIN, PERFMON = 19, 21, 38
# What user namespaces map where there is only the first one, which the kernel asks of for events of the CPU.
FIRST_NAMESPACE = ["0", "0", "4294967295"]
# Who may look into a running process, by the value of `ptrace_scope`. Source: the kernel's documentation of Yama.
SCOPES = {
    0: "0: py-spy and gdb may look into any running process of yours",
    1: "1: py-spy and gdb may look into processes that they start, not into running ones",
    2: "2: only root may use py-spy and gdb",
    3: "3: nobody may use py-spy and gdb, until the machine restarts",
}
# Mean size of a model's weights in the zoo: 3.35e9 parameters of 4 bytes, in 36 models.
WEIGHTS_BYTES = 370_000_000
# The free space must hold what is expected so many times: programs of one's own launch more than those of the zoo.
SPARE = 2


def read_number(path: Path) -> int | None:
    """Return the number in a file of the kernel; None if there is no such file, or no number in it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def has_capability(proc: Path, *wanted: int) -> bool:
    """Return whether this process has one of these Linux capabilities, by their numbers."""
    try:
        lines = (proc / "self/status").read_text().splitlines()
    except OSError:
        return False
    held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return any(held >> number & 1 for number in wanted)


def may_count_events(proc: Path) -> bool:
    """Return whether the kernel lets this process read CPU events whatever `perf_event_paranoid` says.

    It does so for CAP_PERFMON and CAP_SYS_ADMIN, but not for root of a user namespace of its own, as in a rootless
    container. Source: the kernel's Documentation/admin-guide/perf-security.rst.
    """
    try:
        mapped = (proc / "self/uid_map").read_text().split()
    except OSError:
        return False
    return mapped == FIRST_NAMESPACE and has_capability(proc, SYS_ADMIN, PERFMON)


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Check the size of the memory in which processes that load data pass batches on."""
    name = "shared memory"
    try:
        size = shutil.disk_usage(folder).total
    except OSError as error:
        return Finding(name, f"{folder}: {error.strerror}", "mount a tmpfs there: workers of a DataLoader need it")
    advice = "start the container with `--shm-size 8g` or `--ipc=host`, or leave workers at 0"
    return Finding(name, f"{formatting.size(size)} in {folder}", advice if size < SHARED_BYTES else None)


def check_ptrace(proc: Path = PROC) -> Finding | None:
    """Say who may look into running processes; None where the kernel does not restrict that by `ptrace_scope`.

    Tools of profzoo need no such permission, because they start what they profile. A job that hangs is looked into by
    py-spy or gdb. Sources: the kernel's Documentation/admin-guide/LSM/Yama.rst; py-spy's README, "When do you need to
    run as sudo?".
    """
    scope = read_number(proc / "sys/kernel/yama/ptrace_scope")
    if scope is None:
        return None
    if scope < max(SCOPES) and has_capability(proc, SYS_PTRACE):
        return Finding("ptrace", f"{scope}: this process may look into any running process (CAP_SYS_PTRACE)")
    advice = "only to see where a job hangs: run py-spy as root, or start the container with --cap-add SYS_PTRACE"
    return Finding("ptrace", SCOPES.get(scope, str(scope)), advice if scope == 2 else None)


def check_disk(results: Path, expected_bytes: int) -> Finding:
    """Check whether the file system of the results has room for what a run is expected to leave there.

    results: folder of the results, which may not exist yet. expected_bytes: size of everything that is selected.
    """
    name, found = "disk", results.absolute()
    while not found.exists():
        found = found.parent
    try:
        free = shutil.disk_usage(found).free
    except OSError as error:
        return Finding(name, f"{results}: {error.strerror}", "choose another folder: --config pathvars={results: ...}")
    if not os.access(found, os.W_OK):
        return Finding(name, f"{results} cannot be written", "choose another folder: --config run=NAME, or pathvars")
    told = f"{formatting.size(free)} free for {results}"
    told += f"; all that is selected takes about {formatting.size(expected_bytes)}" if expected_bytes else ""
    advice = "free some space, or select fewer models, tools or section sets: a full disk fails jobs"
    return Finding(name, told, advice if free < SPARE * expected_bytes else None)


# Checks for doctor: which lock fits the driver, and whether profzoo was tried with the versions that are installed.


def describe_drivers() -> str:
    """Return the oldest driver for each release of torch.

    >>> describe_drivers()
    'torch 2.8 to 2.10 needs driver 525, later ones 580'
    """
    first, *others = versions.BUILDS
    told = [f"torch {first.releases} needs driver {choose_lock.oldest_driver(first)}"]
    told += [
        f"{build.releases if build.newest else 'later ones'} {choose_lock.oldest_driver(build)}" for build in others
    ]
    return ", ".join(told)


def check_lock() -> Finding:
    """Say which lock fits the driver, and which driver each release of torch needs."""
    driver, _ = choose_lock.find_driver()
    fitting = choose_lock.fit_driver(driver) if driver else choose_lock.USUAL
    if fitting is None:
        advice = f"update the driver to {choose_lock.oldest_useful_driver()} or later"
        return Finding("lock", f"none fits ({describe_drivers()})", advice)
    return Finding("lock", f"{fitting.lock} ({describe_drivers()})")


def check_versions() -> Finding:
    """Say which versions are installed, and with which of them profzoo was not tried."""
    names = [one.package for one in versions.SUPPORTED if one.package != versions.PYTHON]
    told = [versions.describe_tried(*one) for one in versions.read_installed(names).items()]
    return Finding("versions", ", ".join(told))
