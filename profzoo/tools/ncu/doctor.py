"""Checks whether ncu can profile on this machine."""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from profzoo.machine import doctor_checks, external_programs
from profzoo.machine.doctor_checks import Check, Finding
from profzoo.tools.ncu.command import INSTALL, PROGRAM
from profzoo.tools.ncu.failures import CAUSES

KERNEL = "import torch; torch.ones(1, device='cuda').add_(1); torch.cuda.synchronize()"
# Versions with which whole runs were made on GPUs: docs/measured/cost.md.
TRIED = ("2025.3",)
# A report of a small section set, with its tables. One of the set `full` takes 71 to 224 MB: docs/measured/cost.md.
REPORT_BYTES = 2_000_000
RESTRICTED = Path("/proc/driver/nvidia/params")


def list_checks() -> Sequence[Check]:
    """List the checks: the program is installed and may read counters."""
    return (check_program, check_counters)


def describe_use(lacking: frozenset[str]) -> str | None:
    """Return `ncu` if it can profile here, else None; it needs a GPU that torch can use, and access to counters."""
    return None if lacking & {"GPU", "torch CUDA", "torch", PROGRAM, "counters"} else "ncu"


def check_program() -> Finding:
    """Check whether ncu is on PATH."""
    return doctor_checks.check_on_path(PROGRAM, INSTALL, TRIED)


def check_counters() -> Finding:
    """Check whether ncu may read performance counters, by profiling one small kernel."""
    name = "counters"
    if not shutil.which("ncu") or not doctor_checks.find_usable_gpus():
        return Finding(name, "not checked, because this needs ncu and a GPU", "see ncu and GPU above")
    with tempfile.TemporaryDirectory() as folder:
        words = ["ncu", "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--launch-count", "1"]
        words += ["--export", f"{folder}/probe", sys.executable, "-c", KERNEL]
        answer = external_programs.ask_program(words, doctor_checks.PATIENCE_S)
        if (Path(folder) / "probe.ncu-rep").exists():
            return Finding(name, "readable (profiled one kernel)")
    if answer.returncode == external_programs.TIMED_OUT:
        return Finding(name, "not known", f"{answer.stderr}: look for other jobs under ncu, or a profiler that hangs")
    reason = (
        doctor_checks.match_cause(answer.stdout + answer.stderr, CAUSES) or "ncu left no report of one small kernel"
    )
    restricted = RESTRICTED.exists() and "RmProfilingAdminOnly: 1" in RESTRICTED.read_text()
    return Finding(name, "not readable" + (" (the driver restricts them to root)" if restricted else ""), reason)
