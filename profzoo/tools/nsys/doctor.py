"""Checks whether nsys can trace on this machine."""

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from profzoo.machine import doctor_checks, external_programs
from profzoo.machine.doctor_checks import Check, Finding
from profzoo.range_names import DOMAIN, WINDOW, make_nvtx_name
from profzoo.tools.nsys.command import INSTALL, NVTX_CAPTURE, PROGRAM
from profzoo.tools.nsys.failures import CAUSES

# A window, as the harness opens it.
OPENS = (
    f"import nvtx; domain = nvtx.get_domain({DOMAIN!r}); "
    f"domain.push_range(domain.get_event_attributes(message={make_nvtx_name(WINDOW)!r})); domain.pop_range()"
)
# Without what is said of a window that never opened, which is what a check is about.
FAILURES = CAUSES[:-1]


def list_checks() -> Sequence[Check]:
    """The program, its importer, and what opens ranges."""
    return (check_program, check_importer, check_nvtx)


def describe_use(lacking: frozenset[str]) -> str | None:
    """Return `nsys` if it can trace here, with or without a GPU, else None."""
    return None if lacking & {PROGRAM, "nsys importer", "nvtx", "torch"} else "nsys"


def check_program() -> Finding:
    """Check whether nsys is on PATH."""
    return doctor_checks.check_on_path(PROGRAM, INSTALL)


def check_importer() -> Finding:
    """Check whether nsys can write a report, by tracing a program that does nothing."""
    name = "nsys importer"
    if not shutil.which(PROGRAM):
        return Finding(name, "not checked, because this needs nsys", "see nsys above")
    left, answer = _traced("pass", "--trace=osrt")
    if left:
        return Finding(name, "works (traced one process)")
    if answer.returncode == external_programs.TIMED_OUT:
        return Finding(name, "not known", answer.stderr)
    printed = answer.stdout + answer.stderr
    return Finding(name, "leaves no report", doctor_checks.match_cause(printed + "\nQdstrmImporter", CAUSES))


def check_nvtx() -> Finding:
    """Check which nvtx package opens ranges, and whether nsys, if installed, records them."""
    version = importlib.metadata.version("nvtx")
    if not shutil.which(PROGRAM):
        return Finding("nvtx", version)
    left, answer = _traced(OPENS, "--trace=nvtx", *NVTX_CAPTURE)
    if left:
        return Finding("nvtx", f"{version}, seen by nsys")
    printed = answer.stdout + answer.stderr
    if answer.returncode or doctor_checks.match_cause(printed, FAILURES):
        return Finding("nvtx", f"{version}, unknown whether this nsys sees its ranges", _failed(answer))
    advice = "install the current Nsight Systems, or a release of nvtx as old as this one"
    return Finding("nvtx", f"{version}, whose ranges this nsys does not see", advice)


def _failed(answer: subprocess.CompletedProcess[str]) -> str:
    """Explain in one line why nsys failed to trace a program."""
    printed = answer.stdout + answer.stderr
    if known := doctor_checks.match_cause(printed, FAILURES):
        return known
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    if answer.returncode == external_programs.TIMED_OUT and lines:
        return f"{lines[-1]}: check again when this machine is less busy"
    return f"nsys failed (exit code {answer.returncode}): {lines[-1] if lines else 'it printed nothing'}"


def _traced(code: str, *options: str) -> tuple[bool, subprocess.CompletedProcess[str]]:
    """Whether nsys leaves a report of a program in Python, and what both printed.

    Where nsys itself fails, as it may on a busy machine, it is tried once more; not where it hangs.
    """
    for more in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            words = [PROGRAM, "profile", *options, "--sample=none", "--cpuctxsw=none", f"--output={folder}/probe"]
            answer = external_programs.ask_program(
                [*words, sys.executable, "-c", code], doctor_checks.PATIENCE_S, cwd=folder
            )
            left = (Path(folder) / "probe.nsys-rep").exists()
        failed = answer.returncode or doctor_checks.match_cause(answer.stdout + answer.stderr, FAILURES)
        if left or not more or not failed or answer.returncode == external_programs.TIMED_OUT:
            break
    return left, answer
