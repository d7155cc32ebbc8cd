"""Results of doctor checks, queries to the Python that jobs use, and causes of failures found in printed text."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profzoo.errors import ConfigError
from profzoo.machine import external_programs, gpus

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
