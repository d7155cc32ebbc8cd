"""Prepares a measured program that a job started: it gets the job's umask, and ends when the job ends."""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from profzoo.machine import scratch_folder

# nsys starts programs with a umask of 0. Until they have the job's umask again they write no bytecode, because any user
# could replace such files.
UMASK, NO_BYTECODE = "PROFZOO_UMASK", "PYTHONDONTWRITEBYTECODE"


def job_variables(folder: Path) -> dict[str, str]:
    """Environment variables that tell a program its job; folder: the job's temporary folder."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {scratch_folder.JOB: str(folder), UMASK: f"{mask:04o}", NO_BYTECODE: "1"}


def enter_job(given: MutableMapping[str, str] = os.environ) -> None:
    """Apply the job's environment variables, if they are set; given: the environment of this process.

    Raises:
        SystemExit: the job has ended meanwhile.
    """
    if mask := given.pop(UMASK, None):
        os.umask(int(mask, 8))
        # Without bytecode, importing torch takes several times as long.
        given.pop(NO_BYTECODE, None)
        sys.dont_write_bytecode = False
    folder = given.get(scratch_folder.JOB)
    if folder and not scratch_folder.die_with_folder(Path(folder)):
        print(f"the job of this program has ended: {folder} is nobody's", file=sys.stderr)
        sys.exit(1)
