"""Recognises known failures of collecting commands and explains what to do about each."""

import errno
import re
import signal
from collections.abc import Mapping, Sequence

from profzoo import tools
from profzoo.machine import doctor_checks

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
MORE = "take a smaller batch or fewer workers, or ask for more with --set-resources RULE:mem_mb=MB"
# Largest number of characters kept of a line that names a cause.
LONGEST = 2000
KILLED = f"by a user, or by a batch system because it took too much memory or time; {MORE}"
STARVED = f"by the kernel, which had no memory left: {MORE}"
FULL = "no space is left on the disk: free some, or give other folders by TMPDIR and by pathvars in the configuration"
CLOSED = "give the right to write there, or another folder by pathvars in the configuration"
CURES: Mapping[int, str] = {
    errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EACCES: CLOSED, errno.EPERM: CLOSED, errno.EROFS: CLOSED
}  # fmt: skip
FILES = ("../tools/*/failures.py",)
EXTENDED = ("tools/*/failures.py",)
# Failures that any tool may have; these patterns are tried first.
CAUSES: Sequence[tuple[str, str]] = (
    (
        r"unrecogni[sz]ed option",
        "the tool does not know one of the options: see ncu.extra and nsys.extra, or its version is too old",
    ),
    (r"[Nn]o space left on device|[Dd]isk quota exceeded", FULL),
    (
        r"DataLoader worker \(pid.* is killed by signal|out of shared memory",
        "a process that loads data was killed: lower workers, or give it more memory, which it takes of /dev/shm too",
    ),
    (r"CUDA out of memory|CUDA error: out of memory", "the GPU's memory is not enough: set a smaller batch"),
    *doctor_checks.ON_GPU,
    (
        r"(?m)^MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc",
        f"the memory of this machine, or the job's limit of it, is not enough: {MORE}",
    ),
)


def find_cause(log: str) -> str | None:
    """Find the cause of a failure in the job's output; lines from the model's own program take precedence."""
    own = re.findall(r"^profzoo: (.*)$", log, re.MULTILINE)
    if own:
        return add_advice(own[-1] if len(own[-1]) <= LONGEST else f"{own[-1][:LONGEST]} …")
    return doctor_checks.match_cause(log, known_patterns())


def add_advice(line: str) -> str:
    """Add known advice to a line about a failure, unless the line contains advice already.

    >>> add_advice("unet train ran out of memory at batch 64: set a smaller batch. CUDA out of memory.")
    'unet train ran out of memory at batch 64: set a smaller batch. CUDA out of memory.'
    """
    advice = doctor_checks.match_cause(line, CAUSES)
    return f"{line}; {advice}" if advice and advice.rpartition(": ")[2] not in line else line


def explain_os_error(error: OSError) -> str:
    """Explain an error of the operating system, and what to do about it.

    >>> explain_os_error(PermissionError(13, "Permission denied", "results")).partition(";")[0]
    'results: Permission denied'
    """
    line = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    cure = CURES.get(error.errno or 0)
    return f"{line}; {cure}" if cure else line


def explain_exit(program: str, code: int, starved: bool = False) -> str:
    """Describe how a program failed.

    code: exit code; for a signal, 128 plus its number as in a shell, or the negative number. starved: whether the
    kernel killed processes for lack of memory during the run.

    >>> explain_exit("nsys", 137, starved=True).partition(": ")[0]
    'nsys was killed (SIGKILL)'
    >>> explain_exit("ncu", -11)
    'ncu crashed (SIGSEGV)'
    >>> explain_exit("python", 3)
    'python ended with exit code 3'
    """
    number = -code if code < 0 else code - 128
    names = {member.value: member.name for member in signal.Signals}
    if number == signal.SIGKILL:
        return f"{program} was killed (SIGKILL): {STARVED if starved else KILLED}"
    if number in CRASHES:
        return f"{program} crashed ({names[number]})"
    return f"{program} was ended by {names[number]}" if number in names else f"{program} ended with exit code {code}"


def known_patterns() -> list[tuple[str, str]]:
    """List pattern and explanation of known failures: general ones, then those of each tool."""
    return [*CAUSES, *(one for failures in tools.failures().values() for one in failures.CAUSES)]


def find_warnings(log: str) -> list[str]:
    """Warnings of the tool in its log, each listed once."""
    found = re.findall(r"^(?:==WARNING==|WARNING:|Warning:)\s*(.+)$", log, re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in found))
