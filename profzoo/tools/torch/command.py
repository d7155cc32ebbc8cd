"""torch.profiler runs inside the process."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from profzoo.errors import CollectError
from profzoo.tools.defaults import SIDECARS

# Endings of the files of each of several processes, by the names of the rule's outputs.
OF_PROCESS = {"operators": ".operators.csv", "trace": ".trace.json.gz"}


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Return options with the paths of the trace, and of the baseline that the same process times before it."""
    timed = ["--steps", str(made["steps"])] if "steps" in made else []
    each = ["--ranks", str(made["ranks"])] if "ranks" in made else []
    return [*timed, *each, "--operators", str(made["operators"]), "--trace", str(made["trace"])]


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
