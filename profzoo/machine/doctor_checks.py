"""What a check of this machine found, what asks its Python, and the cause of a failure by what a program printed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profzoo.errors import ConfigError
from profzoo.machine import external_programs, gpus

# Seconds: longer than importing torch takes on a slow disk, and than ncu or nsys take over nothing.
PATIENCE_S = 300
# What CUDA says of a kernel, after which the process cannot use the GPU any more.
ON_GPU = (
    (
        r"illegal memory access|misaligned address|illegal address",
        "a kernel reads or writes outside its tensors: run the log's command under `compute-sanitizer`, which names it",
    ),
    (
        r"device-side assert",
        "most often an index out of range, as of an embedding or of a loss's classes: the log names the kernel, and "
        "device=cpu the line",
    ),
)


@dataclass(frozen=True)
class Finding:
    """What one check found; advice: what to do, None where nothing is missing."""

    name: str
    found: str
    advice: str | None = None


Check = Callable[[], Finding]


def ask_job_python(code: str) -> subprocess.CompletedProcess[str]:
    """The answer of the Python that jobs use."""
    return external_programs.ask_program([sys.executable, "-c", code], PATIENCE_S)


def find_usable_gpus() -> list[dict[str, str]]:
    """The GPUs that a job may take; none where that cannot be told, which the check of GPUs says."""
    try:
        return gpus.list_visible_gpus(os.environ)
    except ConfigError:
        return []


def check_on_path(program: str, install: str) -> Finding:
    """Whether a program is on PATH, and its version; install: what to do where it is not."""
    if shutil.which(program):
        return Finding(program, external_programs.read_version(program) or "no version")
    return Finding(program, "not on PATH", install)


def match_cause(printed: str, causes: Sequence[tuple[str, str]]) -> str | None:
    """What the first pattern that is found in a text stands for."""
    return next((advice for pattern, advice in causes if re.search(pattern, printed)), None)
