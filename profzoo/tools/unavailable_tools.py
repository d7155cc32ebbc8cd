"""Says which tools cannot run on this machine, before any of their jobs fails, and which tools commands here name."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from profzoo import tools
from profzoo.cell import schema

FILES = ("*/doctor.py",)
EXTENDED = ("tools/*/doctor.py",)
NO_GPU = frozenset({"GPU"})
# The operating system lists GPUs here; nvidia-smi would take longer than everything else before a run.
DEVICES = Path("/dev")
# Runs on any machine that has torch.
ANYWHERE = "torch"
# Words of a command that needs a GPU.
OF_GPUS = re.compile(r"\bgpus=|\btool=\S*\b(?:ncu|nsys)\b|\.(?:ncu|nsys)[.-]")
# Ends the help where there is no GPU.
NO_GPU_HERE = f"""
On this machine, which has no GPU:
  snakemake report --config tool={ANYWHERE}                  profile on the CPU; add tool={ANYWHERE} to other commands
"""


def count_gpus() -> int:
    """Count the GPUs that the operating system's kernel shows."""
    return len(list(DEVICES.glob("nvidia[0-9]*")))


def find_unavailable(chosen: Iterable[str], device: str) -> dict[str, str]:
    """Return the reasons why tools certainly cannot run here, by tool; device: setting of the configuration."""
    if device == "cuda" and lacks_gpu():
        why = "device is cuda, and there is no GPU: device=cpu and device=auto measure on this CPU"
        return dict.fromkeys((tool for tool in chosen if tool in tools.names()), why)
    no_gpu = "device is cpu" if device == "cpu" else "there is no GPU" if lacks_gpu() else ""
    return {tool: why for tool in chosen if (why := _why(tool, no_gpu))}


def lacks_gpu() -> bool:
    """Return whether this machine certainly has no GPU."""
    # Some virtual machines list a GPU under another name; if nvidia-smi exists, there may be one.
    return not count_gpus() and not shutil.which("nvidia-smi")


def choose_tools(on_cpu: bool) -> list[str]:
    """Return the tools that a command names so that it runs on this machine: of the default, those that can run here.

    on_cpu: whether what the command measures runs on the CPU.
    """
    default: list[str] = schema.load_schema()["properties"]["tool"]["default"]
    unable = find_unavailable(default, "cpu" if on_cpu else "auto")
    on_gpu = [tool for tool in default if tool not in unable]
    return [ANYWHERE] if on_cpu or lacks_gpu() or not on_gpu else on_gpu


def _why(tool: str, no_gpu: str) -> str:
    command, doctor = tools.commands().get(tool), tools.doctors().get(tool)
    # A tool without a program of its own runs without a GPU, and reports that there was nothing to measure.
    if no_gpu and command and command.PROGRAM and doctor and doctor.describe_use(NO_GPU) is None:
        return f"it profiles GPUs only, and {no_gpu}"
    if command and command.PROGRAM and not shutil.which(command.PROGRAM):
        return f"it is not on PATH: {command.INSTALL}"
    return ""


def name_maker(command: str) -> str:
    """Say that a command of the workflow makes something, with the tools that can run on this machine.

    A command that names profilers of GPUs or several GPUs stays as it is; without a GPU, it is one for another machine.
    """
    if not lacks_gpu():
        return f"`{command}` makes"
    if OF_GPUS.search(command):
        return f"on a machine with a GPU, `{command}` makes"
    if "tool=" in command:
        return f"`{command}` makes"
    return f"`{command}{'' if '--config' in command else ' --config'} tool={ANYWHERE}` makes"


def list_unable_tools(unable: Mapping[str, str]) -> list[str]:
    """Return one line per tool that cannot run here; unable: reasons by tool.

    >>> list_unable_tools({"ncu": "it profiles GPUs only"})
    ['ncu cannot run here, because it profiles GPUs only (tool=torch can; snakemake doctor says more)']
    """
    instead = f"(tool={ANYWHERE} can; snakemake doctor says more)"
    return [f"{tool} cannot run here, because {why} {instead}" for tool, why in unable.items()]
