"""Knows the failures of collecting commands and says in plain words what to do about each."""

import re
import signal
from collections.abc import Sequence

from profzoo import tools
from profzoo.machine import findings

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
KILLED = "out of memory, or by somebody; ask for more with --set-resources RULE:mem_mb=MB"
FILES = ("../tools/*/failures.py",)
# Of no tool alone; looked for first.
CAUSES: Sequence[tuple[str, str]] = (
    (
        r"unrecogni[sz]ed option",
        "the tool does not know one of the options: see ncu.extra and nsys.extra, or its version is too old",
    ),
    (r"[Nn]o space left on device", "no space is left on the disk"),
)


def cause(log: str) -> str | None:
    """The cause of a failure, from what the job printed; a line of the model's own program goes first."""
    own = re.findall(r"^profzoo: (.*)$", log, re.MULTILINE)
    if own:
        return own[-1]
    return findings.cause(log, known())


def ended(program: str, code: int) -> str:
    """How a program ended that did not end well; code: its exit code, that of a shell or negative for a signal.

    >>> ended("nsys", 137)
    'nsys was killed (SIGKILL): out of memory, or by somebody; ask for more with --set-resources RULE:mem_mb=MB'
    >>> ended("ncu", -11)
    'ncu crashed (SIGSEGV)'
    >>> ended("python", 3)
    'python ended with exit code 3'
    """
    number = -code if code < 0 else code - 128
    names = {member.value: member.name for member in signal.Signals}
    if number == signal.SIGKILL:
        return f"{program} was killed (SIGKILL): {KILLED}"
    if number in CRASHES:
        return f"{program} crashed ({names[number]})"
    return f"{program} was ended by {names[number]}" if number in names else f"{program} ended with exit code {code}"


def known() -> list[tuple[str, str]]:
    """Patterns, and what each stands for: the general ones, then those of each tool."""
    return [*CAUSES, *(one for failures in tools.failures().values() for one in failures.CAUSES)]


def warnings(log: str) -> list[str]:
    """The tool's own warnings, each once."""
    found = re.findall(r"^(?:==WARNING==|WARNING:|Warning:)\s*(.+)$", log, re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in found))
