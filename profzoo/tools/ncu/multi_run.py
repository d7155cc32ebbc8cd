"""Runs ncu several times on one program, because one run of ncu accepts only one selection of launches.

python -m profzoo.tools.ncu.multi_run FOLDER OPTION ... --then OPTION ... --in-all ncu OPTION ... REPORT -- PROGRAM ...

Options before `--in-all` are of a run each, and a list of metrics among them replaces that of all runs. The first
run leaves REPORT, the others FOLDER/2.ncu-rep and so on. The first that fails ends it, with its exit code.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from profzoo.tools.ncu.command import IN_ALL, keep_first_metrics, run_options


def split_commands(arguments: Sequence[str]) -> list[list[str]]:
    """Return the command of each run.

    >>> words = "more -c 1 --then -c 2 --in-all ncu --set full --export x -- run"
    >>> for command in split_commands(words.split()):
    ...     print(*command)
    ncu -c 1 --set full --export x run
    ncu -c 2 --set full --export more/2.ncu-rep run
    """
    at, end = arguments.index(IN_ALL), arguments.index("--")
    program, *shared, report = arguments[at + 1 : end]
    found = []
    for number, own in enumerate(run_options(arguments[1 : at + 1]), 1):
        target = report if number == 1 else str(Path(arguments[0]) / f"{number}.ncu-rep")
        found.append([*keep_first_metrics([program, *own, *shared, target]), *arguments[end + 1 :]])
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    Path(arguments[0]).mkdir(exist_ok=True)
    for command in split_commands(arguments):
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
