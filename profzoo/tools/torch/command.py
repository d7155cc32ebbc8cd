"""torch.profiler runs inside the process."""

import importlib.metadata
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profzoo.errors import CollectError, ConfigError
from profzoo.tools.defaults import SIDECARS

# Endings of the files of each of several processes, by the names of the rule's outputs.
OF_PROCESS = {"operators": ".operators.csv", "trace": ".trace.json.gz"}


def check_settings(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of torch.profiler.

    Raises:
        ConfigError: counters are asked for. torch.profiler counts (`profiler_metrics`) where it is built with CUPTI's
            range profiler, which it is for CUDA up to 12.6 at most (pytorch/kineto's change 1131).
    """
    if own["counters"]:
        raise ConfigError(
            f"torch.counters = {own['counters']}: torch {importlib.metadata.version('torch')} is built without CUPTI's "
            "range profiler, so torch.profiler counts nothing: let ncu count, such as with ncu.set"
        )
    return own


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Return options with the paths of the trace, the timed baseline, several processes and further files."""
    named = {"--steps": "steps", "--ranks": "ranks", "--more": "more"}
    others = [word for option, name in named.items() if name in made for word in (option, str(made[name]))]
    return [*others, "--operators", str(made["operators"]), "--trace", str(made["trace"])]


def output_files(made: Mapping[str, Path]) -> list[Path]:
    """Return what the program must have left; the files of several processes are checked when they are read."""
    by_process = OF_PROCESS if "ranks" in made else {}
    return [path for name, path in made.items() if name not in (*SIDECARS, *by_process)]


def arrange_outputs(made: Mapping[str, Path]) -> None:
    """Give the cell its table and trace: those of the first of several processes.

    Raises:
        CollectError: the first process left none, or several hosts have one.
    """
    if "ranks" not in made:
        return
    for name, ending in OF_PROCESS.items():
        found = sorted(made["ranks"].glob(f"*.0{ending}"))
        if len(found) != 1:
            raise CollectError(f"{len(found)} files *.0{ending} of the first process in {made['ranks']}, not one")
        shutil.copyfile(found[0], made[name])
