"""Writes Snakemake's objections to a job's output files into the job's log, where users look for causes.

Snakemake may refuse the files of a program that succeeded; the log would then end with the program's success. Snakemake
prints its reason among messages of other jobs, or in processes on other nodes, whose output the run does not see.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

OLDER = re.compile(
    r"Output (?P<made>.+?) has older modification time \((?P<now>.+?)\) than input (?P<of>.+?) \((.+?)\)"
)
MISSING = "some output files are missing"


def note_refusals(dag: Any) -> None:
    """Record from now on Snakemake's objections, by this DAG class, to the files that jobs made."""
    check = dag.check_and_touch_output
    if hasattr(check, "noted"):
        return

    async def noted(self: Any, job: Any, *arguments: Any, **more: Any) -> None:
        try:
            await check(self, job, *arguments, **more)
        except Exception as error:
            for log in job.log:
                # A full disk or an unreachable log must not hide the error itself.
                with suppress(OSError), Path(log).open("a") as file:
                    print(f"profzoo: {explain_refusal(str(error))}", file=file)
            raise

    noted.noted = True  # type: ignore[attr-defined]
    dag.check_and_touch_output = noted


def explain_refusal(message: str) -> str:
    """Turn Snakemake's message about a job's files into one line that says what to do.

    >>> printed = "Output a.csv has older modification time (7:00) than input m.py (8:00). This could"
    >>> explain_refusal(printed).split(": ")[0]
    'a.csv, made at 7:00, would be older than m.py of 8:00'
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if found := OLDER.search(message):
        return (
            f"{found['made']}, made at {found['now']}, would be older than {found['of']} of {found[4]}: the clock was "
            f"set back, or differs between machines; set it right, and then `touch {found['of']}`"
        )
    if MISSING in message:
        # One line per file, after a line about the time that Snakemake waited for them.
        gone = [line.split(" (")[0] for line in lines[1:]]
        return f"its program succeeded but left no {', '.join(gone) or 'output file'}"
    return "; ".join(lines)
