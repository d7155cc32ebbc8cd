"""Runs a cell's processes under a profiler: either all of them, or only the first.

python -m profzoo.collect.profile_ranks {first,all} PROFILER OPTION ... -- PROGRAM ...
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from profzoo.machine import process_tree, scratch_folder

# Prefix of a rank's folder, and the file in it that names the owning process.
PREFIX, PROCESS = "profzoo-rank-", "process"


def rank_words(which: str, arguments: Sequence[str], rank: int) -> list[str]:
    """Build the command of the process with this rank; which: `first` or `all`.

    >>> rank_words("first", ["ncu", "--set", "full", "--", "python", "x.py"], 0)
    ['ncu', '--set', 'full', 'python', 'x.py']
    >>> rank_words("first", ["ncu", "--set", "full", "--", "python", "x.py"], 1)
    ['python', 'x.py']
    """
    at = arguments.index("--")
    profiler = arguments[:at] if rank == 0 or which == "all" else []
    return [*profiler, *arguments[at + 1 :]]


def rank_folder(rank: int) -> str:
    """Make a private temporary folder for the rank that this process is about to become.

    ncu locks a file in TMPDIR and waits for other processes under ncu. Those processes may wait for this process's
    communication, which would be a deadlock. Where Slurm starts processes, all users share TMPDIR: the folder's name is
    new and not predictable. The next call removes the folders of ended processes.
    """
    place = Path(tempfile.gettempdir())
    if str(place) == os.environ.get(scratch_folder.JOB):
        # A short name, as the length of socket paths is limited.
        (folder := place / f"r{rank}").mkdir(mode=0o700, exist_ok=True)
        return str(folder)
    for old in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = old.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and _over((old / PROCESS).read_text()):
                shutil.rmtree(old)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{rank}-", dir=place))
    (folder / PROCESS).write_text(process_tree.process_identity(os.getpid()))
    return str(folder)


def _over(process: str) -> bool:
    """Return whether a process has ended; False for one that is not visible from here.

    process: identity of the process, from process_tree.process_identity.

    >>> _over(process_tree.process_identity(os.getpid())), _over("1:2:3"), _over("")
    (False, False, False)
    """
    number, _, rest = process.partition(":")
    seen = rest.partition(":")[2] == process_tree.process_identity(os.getpid()).split(":")[2]
    return seen and number.isdecimal() and process_tree.process_identity(int(number)) != process


if __name__ == "__main__":
    number = int(os.environ["RANK"])
    command = rank_words(sys.argv[1], sys.argv[2:], number)
    os.execvpe(command[0], command, os.environ | {"TMPDIR": rank_folder(number)})
