"""Runs other programs to ask for information; a missing or hanging program gives an answer as well."""

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
    """Run the command and return output and exit code; MISSING or TIMED_OUT with the reason as stderr.

    A program that takes longer than `seconds` is killed with all processes that it started. It is not waited for,
    because a driver may hold it forever.

    env: environment of the program; None for this process's environment.
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
    """Kill the process and its group if it is still running."""
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
    """Last line printed by `program --version`."""
    return (ask_program([program, "--version"]).stdout.strip().splitlines() or [""])[-1]
