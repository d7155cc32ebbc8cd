"""Checks of this machine that concern every tool: shared memory, disk space, and who may look into other processes."""

import os
import shutil
from pathlib import Path

from profzoo import formatting
from profzoo.machine.doctor_checks import Finding

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
# Mean size of a model's weights in the zoo: 1.24e9 parameters of 4 bytes, in 21 models.
WEIGHTS_BYTES = 240_000_000
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
