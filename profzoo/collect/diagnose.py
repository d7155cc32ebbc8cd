"""Knows the failures of collecting commands and says in plain words what to do about each."""

import re
from collections.abc import Sequence

from profzoo import tools
from profzoo.machine import findings

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


def known() -> list[tuple[str, str]]:
    """Patterns, and what each stands for: the general ones, then those of each tool."""
    return [*CAUSES, *(one for failures in tools.failures().values() for one in failures.CAUSES)]


def warnings(log: str) -> list[str]:
    """The tool's own warnings, each once."""
    found = re.findall(r"^(?:==WARNING==|WARNING:|Warning:)\s*(.+)$", log, re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in found))
