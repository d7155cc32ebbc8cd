"""What a measured program does first where a job started it: it has the job's umask again, and ends with the job."""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from profzoo.machine import scratch_folder

# nsys starts programs with a umask of 0. Until they have the job's again they write no bytecode, which anybody could
# then replace.
UMASK, NO_BYTECODE = "PROFZOO_UMASK", "PYTHONDONTWRITEBYTECODE"


def job_variables(folder: Path) -> dict[str, str]:
    """What tells a program of a job that has this folder for its temporary files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {scratch_folder.JOB: str(folder), UMASK: f"{mask:04o}", NO_BYTECODE: "1"}


def enter_job(given: MutableMapping[str, str] = os.environ) -> None:
    """Do what these variables say, if they are there; given: the environment of this process.

    Raises:
        SystemExit: the job has ended meanwhile.
    """
    if mask := given.pop(UMASK, None):
        os.umask(int(mask, 8))
        # Uncompiled, torch alone takes several times as long to import.
        given.pop(NO_BYTECODE, None)
        sys.dont_write_bytecode = False
    folder = given.get(scratch_folder.JOB)
    if folder and not scratch_folder.die_with_folder(Path(folder)):
        print(f"the job of this program has ended: {folder} is nobody's", file=sys.stderr)
        sys.exit(1)
