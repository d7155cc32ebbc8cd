"""Runs a profiler in the first of a cell's processes and the bare program in the others, or the profiler in all.

python -m profzoo.collect.profile_ranks {first,all} PROFILER OPTION ... -- PROGRAM ...
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def words(which: str, arguments: Sequence[str], rank: int) -> list[str]:
    """What the process of that rank runs; which: `first` or `all`.

    >>> words("first", ["ncu", "--set", "full", "--", "python", "x.py"], 0)
    ['ncu', '--set', 'full', 'python', 'x.py']
    >>> words("first", ["ncu", "--set", "full", "--", "python", "x.py"], 1)
    ['python', 'x.py']
    """
    at = arguments.index("--")
    profiler = arguments[:at] if rank == 0 or which == "all" else []
    return [*profiler, *arguments[at + 1 :]]


def own_folder(rank: int) -> str:
    """A folder for the temporary files of that rank.

    ncu waits at a lock in TMPDIR for other processes under it, while these may wait for this one's communication.
    """
    folder = Path(tempfile.gettempdir()) / f"profzoo-rank-{rank}"
    folder.mkdir(exist_ok=True)
    return str(folder)


if __name__ == "__main__":
    number = int(os.environ["RANK"])
    command = words(sys.argv[1], sys.argv[2:], number)
    os.execvpe(command[0], command, os.environ | {"TMPDIR": own_folder(number)})
