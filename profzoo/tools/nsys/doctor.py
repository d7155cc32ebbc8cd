"""Whether nsys can trace here."""

import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from profzoo.machine import findings, programs
from profzoo.machine.findings import Check, Finding
from profzoo.tools.nsys.command import INSTALL, PROGRAM
from profzoo.tools.nsys.failures import CAUSES


def checks() -> Sequence[Check]:
    """The program, its importer, and what opens ranges."""
    return (check_program, check_importer, check_nvtx)


def able(lacking: frozenset[str]) -> str | None:
    """With or without a GPU."""
    return None if lacking & {PROGRAM, "nsys importer", "torch"} else "nsys"


def check_program() -> Finding:
    """Whether it is on PATH."""
    return findings.on_path(PROGRAM, INSTALL)


def check_importer() -> Finding:
    """Whether nsys can make a report of what it traced, by tracing nothing."""
    name = "nsys importer"
    if not shutil.which("nsys"):
        return Finding(name, "not checked, which takes nsys", "see nsys above")
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "nsys",
            "profile",
            "--trace=osrt",
            "--sample=none",
            "--cpuctxsw=none",
            f"--output={folder}/probe",
        ]
        answer = programs.answer([*words, sys.executable, "-c", "pass"], findings.PATIENCE_S, cwd=folder)
        if (Path(folder) / "probe.nsys-rep").exists():
            return Finding(name, "works (traced one process)")
    if answer.returncode == programs.TIMED_OUT:
        return Finding(name, "not known", answer.stderr)
    printed = answer.stdout + answer.stderr
    return Finding(name, "leaves no report", findings.cause(printed + "\nQdstrmImporter", CAUSES))


def check_nvtx() -> Finding:
    """Which nvtx the ranges come from."""
    return Finding("nvtx", importlib.metadata.version("nvtx"))
