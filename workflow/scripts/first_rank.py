"""Runs a profiler in the first of a cell's processes, and the bare program in the others.

python -m workflow.scripts.first_rank PROFILER OPTION ... -- PROGRAM ...
"""

import os
import sys
from collections.abc import Sequence


def words(arguments: Sequence[str], rank: int) -> list[str]:
    """What the process of that rank runs.

    >>> words(["ncu", "--set", "full", "--", "python", "x.py"], 0)
    ['ncu', '--set', 'full', 'python', 'x.py']
    >>> words(["ncu", "--set", "full", "--", "python", "x.py"], 1)
    ['python', 'x.py']
    """
    at = arguments.index("--")
    profiler = arguments[:at] if rank == 0 else []
    return [*profiler, *arguments[at + 1 :]]


if __name__ == "__main__":
    command = words(sys.argv[1:], int(os.environ["RANK"]))
    os.execvp(command[0], command)
