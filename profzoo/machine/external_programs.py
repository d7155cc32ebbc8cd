"""Asks other programs for an answer: one that is missing, refuses to start or hangs is an answer too."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

MISSING, TIMED_OUT = 127, 124
KILLED_S = 1.0


def ask_program(
    command: Sequence[str], seconds: float = 60, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What the command printed, and its exit code; MISSING or TIMED_OUT, with the reason as its stderr.

    env: what it sees of an environment; None for all of this process's. What takes longer is killed with all that it
    started, and not waited for: a driver may hold it for ever.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=cwd, env=env, process_group=0,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, MISSING, "", f"{command[0]}: {error.strerror}")
    try:
        printed, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        said = f"{command[0]} did not answer within {seconds:g} s"
        return subprocess.CompletedProcess(command, TIMED_OUT, "", said)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, printed, said)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of it, if it has not answered."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)


def read_version(program: str) -> str:
    """The last line that `program --version` prints."""
    return (ask_program([program, "--version"]).stdout.strip().splitlines() or [""])[-1]
