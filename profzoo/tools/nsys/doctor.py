"""Checks whether nsys can trace on this machine."""

import importlib.metadata
import re
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
# Versions with which whole runs were made: with GPUs docs/measured/cost.md, without one tests/workflow/test_nsys.py.
TRIED = ("2023.4", "2025.3")
# Report, export and tables of a cell. The export of ten steps of MobileNetV2's training on an H200 takes 1 MB.
REPORT_BYTES = 5_000_000
# How nsys itself names what it could sample of the CPU here: of the program's own processes, or of all.
SAMPLED = re.compile(r"Environment \((process-tree|system-wide)\): (\w+)")
PARANOID = "sys/kernel/perf_event_paranoid"
# The highest value with which nsys samples the program's own processes. Source: NVIDIA, "Nsight Systems Installation
# Guide", requirements on Linux.
MOST_PARANOID = 2


def list_checks() -> Sequence[Check]:
    """The program, its importer, what opens ranges, and whether it may sample the CPU."""
    return (check_program, check_importer, check_nvtx, check_cpu_samples)


def describe_use(lacking: frozenset[str]) -> str | None:
    """Return `nsys` if it can trace here, with or without a GPU, else None."""
    return None if lacking & {PROGRAM, "nsys importer", "nvtx", "torch"} else "nsys"


def check_program() -> Finding:
    """Check whether nsys is on PATH."""
    return doctor_checks.check_on_path(PROGRAM, INSTALL, TRIED)


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


def check_cpu_samples(proc: Path = doctor_checks.PROC) -> Finding | None:
    """Check whether nsys may sample the CPU, which only `nsys.sample` and `nsys.cpuctxsw` need; None without nsys.

    nsys knows best, because a container may forbid what the kernel's setting allows. An nsys that does not say so is
    judged by the setting.
    """
    if not shutil.which(PROGRAM):
        return None
    level = doctor_checks.read_number(proc / PARANOID)
    answer = external_programs.ask_program([PROGRAM, "status", "--environment"], doctor_checks.PATIENCE_S)
    allowed = (level is not None and level <= MOST_PARANOID) or doctor_checks.may_count_events(proc)
    said = dict(SAMPLED.findall(answer.stdout)) or {"process-tree": "OK" if allowed else "Fail"}
    able = [what for what, how in said.items() if how == "OK"]
    setting = f"perf_event_paranoid is {level}"
    if "process-tree" in able:
        return Finding("CPU samples", f"possible, {' and '.join(able)} ({setting})")
    advice = (
        "a container forbids them: start it with `--cap-add SYS_ADMIN`, for nsys.sample only"
        if allowed
        else f"for nsys.sample only: `sysctl kernel.perf_event_paranoid={MOST_PARANOID}` as root of the host"
    )
    return Finding("CPU samples", f"not possible ({setting})", advice)


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
