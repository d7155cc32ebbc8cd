"""Explains which tools of a run cannot run on this machine, before any of their jobs fails."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from profzoo import tools

FILES = ("../tools/*/doctor.py",)
EXTENDED = ("tools/*/doctor.py",)
NO_GPU = frozenset({"GPU"})
# The operating system lists GPUs here; nvidia-smi would take longer than everything else before a run.
DEVICES = Path("/dev")


def count_gpus() -> int:
    """Count the GPUs that the operating system's kernel shows."""
    return len(list(DEVICES.glob("nvidia[0-9]*")))


def find_unavailable(chosen: Iterable[str], device: str) -> dict[str, str]:
    """Return the reasons why tools certainly cannot run here, by tool; device: setting of the configuration."""
    # Some virtual machines list a GPU under another name; if nvidia-smi exists, there may be one.
    none = not count_gpus() and not shutil.which("nvidia-smi")
    found = {}
    for tool in chosen:
        if why := _why(tool, "device is cpu" if device == "cpu" else "there is no GPU" if none else ""):
            found[tool] = why
    return found


def _why(tool: str, no_gpu: str) -> str:
    command, doctor = tools.commands().get(tool), tools.doctors().get(tool)
    # A tool without a program of its own runs without a GPU, and reports that there was nothing to measure.
    if no_gpu and command and command.PROGRAM and doctor and doctor.describe_use(NO_GPU) is None:
        return f"it profiles GPUs only, and {no_gpu}"
    if command and command.PROGRAM and not shutil.which(command.PROGRAM):
        return f"it is not on PATH: {command.INSTALL}"
    return ""


def list_unable_tools(unable: Mapping[str, str]) -> list[str]:
    """Return one line per tool that cannot run here; unable: reasons by tool.

    >>> list_unable_tools({"ncu": "it profiles GPUs only, and there is no GPU"})
    ['ncu cannot run here, because it profiles GPUs only, and there is no GPU (snakemake doctor says what can)']
    """
    return [f"{tool} cannot run here, because {why} (snakemake doctor says what can)" for tool, why in unable.items()]
