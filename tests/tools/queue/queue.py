#!/usr/bin/env python3
"""Stands in for LSF or PBS Pro: runs the jobs that it is given, and says what their programs say; by its name.

Its state lies in the folder QUEUE: a folder a job, and files that a test makes to have the queue misbehave: `away` (no
program answers), `forgetful` (an ended job is history at once), `unkept` (PBS keeps no history), `slow` (cancelling takes
three seconds).
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

QUEUE = Path(os.environ["QUEUE"])
# Runs the script in its own session, so that cancelling reaches all of it.
RUN = 'echo $$ > "$1/pid"; PBS_JOBID=$2 LSB_JOBID=$2 sh "$1/script" > "$1/output" 2>&1 < /dev/null; echo $? > "$1/code"'


def fail(text: str, code: int) -> int:
    """The exit code of a program that prints the text as its error."""
    print(text, file=sys.stderr)
    return code


def away() -> bool:
    return (QUEUE / "away").exists()


def state(job: str) -> str:
    """run, killed, or the exit code of a job; empty where there never was one."""
    folder = QUEUE / job.partition(".")[0]
    if not (folder / "script").exists():
        return ""
    for name in ("killed", "code"):
        with contextlib.suppress(FileNotFoundError):
            if text := (folder / name).read_text().strip():
                return text
    return "run"


def remembered(job: str) -> bool:
    """Whether the queue itself, and not only its history, knows the job."""
    return state(job) == "run" or bool(state(job) and not (QUEUE / "forgetful").exists())


def begin(words: list[str], environment: dict[str, str], suffix: str = "") -> str:
    """Start a job in the background and return its id."""
    number = sum(1 for path in QUEUE.iterdir() if path.is_dir()) + 101
    folder = QUEUE / str(number)
    folder.mkdir()
    (folder / "words").write_text("\n".join(words))
    (folder / "script").write_text(sys.stdin.read())
    subprocess.Popen(
        ["sh", "-c", RUN, "sh", str(folder), f"{number}{suffix}"], env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return f"{number}{suffix}"


def end(job: str) -> None:
    """Kill a job that runs."""
    folder = QUEUE / job.partition(".")[0]
    if state(job) == "run":
        (folder / "killed").write_text("killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)


def bsub(words: list[str]) -> int:
    if away():
        return fail("LSF is down. Please wait ...", 255)
    print(f"Job <{begin(words, dict(os.environ))}> is submitted to default queue <normal>.")
    return 0


def bjobs(words: list[str]) -> int:
    job = words[-1]
    if away():
        return fail("LSF is down. Please wait ...", 255)
    if not remembered(job):
        return fail(f"Job <{job}> is not found", 255)
    print({"run": "RUN", "0": "DONE"}.get(state(job), "EXIT"))
    return 0


def bhist(words: list[str]) -> int:
    job = words[-1]
    if away() or not state(job):
        return fail("No matching job found", 255)
    how = {"0": "Done successfully", "killed": "Exited by signal 9"}.get(
        state(job), f"Exited with exit code {state(job)}"
    )
    lines = [
        f"Job <{job}>, User <someone>, Project <default>, Command <#!/bin/sh;Exited with exit code 9>",
        f"Sun Jan 10 17:47:39: {how}. The CPU time used is 31911.0 seconds;",
    ]
    for line in lines:
        print("\n                     ".join(textwrap.wrap(line, 58, drop_whitespace=False, break_on_hyphens=False)))
    return 0


def bkill(words: list[str]) -> int:
    for job in words:
        end(job)
        print(f"Job <{job}> is being terminated")
    return 0


def qsub(words: list[str]) -> int:
    if away():
        return fail("qsub: cannot connect to server server (errno=111)", 111)
    kept = dict(os.environ) if "-V" in words else {"PATH": "/usr/bin:/bin", "QUEUE": str(QUEUE)}
    print(begin(words, kept, ".server"))
    return 0


def qstat(words: list[str]) -> int:
    job, past = words[-1], "-x" in words
    if away():
        return fail("Connection refused\nqstat: cannot connect to server server (errno=111)", 255)
    if past and (QUEUE / "unkept").exists():
        return fail(f"qstat: PBS is not configured to maintain job history {job}", 1)
    ended = state(job) != "run"
    if not state(job) or (ended and (QUEUE / "unkept").exists()):
        return fail(f"qstat: Unknown Job Id {job}", 153)
    if ended and not past:
        return fail(f"qstat: {job} Job has finished, use -x or -H to obtain historical job information", 35)
    print(f"Job Id: {job}\n    Job_Name = some\n    job_state = {'F' if ended else 'R'}")
    print("    Variable_List = PBS_O_HOME=/home/someone,PBS_O_LANG=C,\n\tPBS_O_WORKDIR=/home/someone/project")
    if ended:
        print(f"    Exit_status = {271 if state(job) == 'killed' else state(job)}")
    print()
    return 0


def qdel(words: list[str]) -> int:
    for job in words:
        end(job)
    return 0


if __name__ == "__main__":
    program = Path(sys.argv[0]).name
    if (QUEUE / "slow").exists() and program in ("bkill", "qdel"):
        time.sleep(3)
    programs = {one.__name__: one for one in (bsub, bjobs, bhist, bkill, qsub, qstat, qdel)}
    sys.exit(programs[program](sys.argv[1:]))
