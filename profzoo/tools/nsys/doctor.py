"""Whether nsys can trace here."""

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from profzoo.machine import findings, programs
from profzoo.machine.findings import Check, Finding
from profzoo.range_names import DOMAIN, WINDOW, nvtx_name
from profzoo.tools.nsys.command import INSTALL, NVTX_CAPTURE, PROGRAM
from profzoo.tools.nsys.failures import CAUSES

# A window, as the harness opens it.
OPENS = (
    f"import nvtx; domain = nvtx.get_domain({DOMAIN!r}); "
    f"domain.push_range(domain.get_event_attributes(message={nvtx_name(WINDOW)!r})); domain.pop_range()"
)


def checks() -> Sequence[Check]:
    """The program, its importer, and what opens ranges."""
    return (check_program, check_importer, check_nvtx)


def able(lacking: frozenset[str]) -> str | None:
    """With or without a GPU."""
    return None if lacking & {PROGRAM, "nsys importer", "nvtx", "torch"} else "nsys"


def check_program() -> Finding:
    """Whether it is on PATH."""
    return findings.on_path(PROGRAM, INSTALL)


def check_importer() -> Finding:
    """Whether nsys can make a report of what it traced, by tracing nothing."""
    name = "nsys importer"
    if not shutil.which(PROGRAM):
        return Finding(name, "not checked, which takes nsys", "see nsys above")
    left, answer = _traced("pass", "--trace=osrt")
    if left:
        return Finding(name, "works (traced one process)")
    if answer.returncode == programs.TIMED_OUT:
        return Finding(name, "not known", answer.stderr)
    printed = answer.stdout + answer.stderr
    return Finding(name, "leaves no report", findings.cause(printed + "\nQdstrmImporter", CAUSES))


def check_nvtx() -> Finding:
    """Which nvtx the ranges come from, and whether nsys sees these, where it is."""
    version = importlib.metadata.version("nvtx")
    if not shutil.which(PROGRAM):
        return Finding("nvtx", version)
    left, answer = _traced(OPENS, "--trace=nvtx", *NVTX_CAPTURE)
    if left or answer.returncode:
        return Finding("nvtx", f"{version}, seen by nsys" if left else version)
    advice = "take the present Nsight Systems, or a release of nvtx from the time of this one"
    return Finding("nvtx", f"{version}, whose ranges this nsys does not see", advice)


def _traced(code: str, *options: str) -> tuple[bool, subprocess.CompletedProcess[str]]:
    """Whether nsys leaves a report of a program in Python, and what both printed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [PROGRAM, "profile", *options, "--sample=none", "--cpuctxsw=none", f"--output={folder}/probe"]
        answer = programs.answer([*words, sys.executable, "-c", code], findings.PATIENCE_S, cwd=folder)
        return (Path(folder) / "probe.nsys-rep").exists(), answer
