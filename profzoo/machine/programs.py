"""Asks other programs for an answer: one that is missing, refuses to start or hangs is an answer too."""

import subprocess
from collections.abc import Sequence

MISSING, TIMED_OUT = 127, 124


def answer(command: Sequence[str], seconds: float = 60, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """What the command printed, and its exit code; MISSING or TIMED_OUT, with the reason as its stderr."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=seconds, cwd=cwd,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, MISSING, "", f"{command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        said = f"{command[0]} did not answer within {seconds:g} s"
        return subprocess.CompletedProcess(command, TIMED_OUT, "", said)


def version(program: str) -> str:
    """The last line that `program --version` prints."""
    return (answer([program, "--version"]).stdout.strip().splitlines() or [""])[-1]
