"""Runs a module of the project under nsys, by the options that the workflow gives it."""

import os
import subprocess
import sys
from pathlib import Path

from profzoo.config import configuration
from profzoo.tools.nsys import command

PROJECT = Path(__file__).parents[2]


def run_under_nsys(
    module: str, folder: Path, gpu: bool = True, **settings: object
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Return the path of the export of a module under nsys, and how the run ended.

    gpu: whether the module uses a GPU. settings: settings of nsys, such as gpu_metrics.
    """
    words = command.options(configuration.normalise_config({"nsys": settings})["nsys"])
    whole = [*command.wrap_command(words, {"report": folder / "t.nsys-rep"}, 1), sys.executable, "-m", module]
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command.adapt_command(whole, gpu), cwd=PROJECT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    return folder / "t.sqlite", done
