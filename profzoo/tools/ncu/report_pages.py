"""Prints pages of a report by `ncu --import`, of all launches or of one."""

import os
import subprocess
from collections.abc import Sequence

from profzoo.errors import DataError
from profzoo.tools.ncu.command import INSTALL, PROGRAM

# Under this locale, numbers are the same on all machines.
LOCALE = {"LC_ALL": "C"}


def print_page(report: str, words: Sequence[str], launch: int | None = None) -> str:
    """Return what `ncu --import` prints as CSV, with the ends of lines as they are.

    words: options that name the page. launch: number of one launch in the report, from 0; None for all launches.

    Raises:
        DataError: ncu is not there, or cannot read the report.
    """
    command = [PROGRAM, "--import", report, "--csv", *words]
    if launch is not None:
        command += ["--launch-skip", str(launch), "--launch-count", "1"]
    try:
        answer = subprocess.run(command, capture_output=True, check=False, env=os.environ | LOCALE)
    except FileNotFoundError:
        raise DataError(f"{PROGRAM} is not on PATH, and reading {report} needs it: {INSTALL}") from None
    # A line of source may be in any encoding.
    printed, said = (stream.decode("utf-8", "replace") for stream in (answer.stdout, answer.stderr))
    if answer.returncode:
        last = (said.strip() or printed.strip() or "it says nothing").splitlines()[-1]
        raise DataError(f"{report} cannot be printed by this ncu: {last[:200]}: take the ncu that wrote it")
    return printed
