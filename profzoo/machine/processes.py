"""Runs a command and ends everything that it started when the command, or this process, ends.

A supervisor (`profzoo.machine.supervisor`) runs between this process and the command. It ends all processes if this
process is killed, and this process ends them if the supervisor is killed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from profzoo.machine import fork_client, process_tree, supervisor, surroundings
from profzoo.machine.supervisor import HEEDED

PROJECT = Path(__file__).parents[2]
INSTALLED = "site-packages"
# Variables that the supervisor's Python needs. It gets no others, because a profiler run by root may record them.
NEEDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME")


@dataclass(frozen=True)
class ProcessLimits:
    """Resources that a job's processes hold, and their time limit.

    held: descriptors that all processes keep open if they can: the locks of GPUs. kept: descriptors that only the
    supervisor keeps open. scratch: folder that is removed with the job. seconds: time limit, None for none. over:
    message when it is exceeded. apart: whether the processes see no other processes of the machine. forks: socket of a
    server that may fork the supervisor and the command's program; empty for none.
    """

    held: Sequence[int] = ()
    kept: Sequence[int] = ()
    scratch: str = ""
    seconds: float | None = None
    over: str = ""
    apart: bool = False
    forks: str = ""


NOTHING = ProcessLimits()


def run_command(
    command: Sequence[str], output: BinaryIO, env: Mapping[str, str] | None, guard: ProcessLimits = NOTHING
) -> int:
    """Run the command with its output in a file; returns its exit code once all its processes have ended.

    A SIGTERM, SIGHUP or SIGINT also ends all of them, and then this process with 128 plus the signal's number. A
    process that ignores SIGTERM is killed.

    Raises:
        SystemExit: this process received a signal.
    """
    before = set(process_tree.list_descendants())
    request = {
        "command": list(command),
        "environment": dict(os.environ if env is None else env),
        "held": list(guard.held),
        "scratch": guard.scratch,
        "seconds": guard.seconds,
        "over": guard.over,
        "apart": guard.apart,
    }
    said = b""
    with _adopting(), raise_on_signals():
        process = _supervisor(output, [*guard.held, *guard.kept], guard.forks, request)
        try:
            said = _answer(process, f"{json.dumps(request)}\n".encode())
        finally:
            # A second signal must not interrupt this, because a process would stay on the GPU.
            for number in HEEDED:
                signal.signal(number, signal.SIG_IGN)
            if not said:
                process.terminate()
                said = _answer(process, b"")
            if left := _left(said, before):
                print(f"profzoo: processes {left} cannot be ended; they may still use a GPU", file=sys.stderr)
            _close(process, bool(left))
    if not said:
        output.write(b"profzoo: the job's supervisor was killed, and its processes with it\n")
        output.flush()
        return -signal.SIGKILL
    return int(json.loads(said)["code"])


def _supervisor(
    output: BinaryIO, descriptors: Sequence[int], forks: str, request: Mapping[str, Any]
) -> subprocess.Popen[bytes] | fork_client.Supervisor:
    if forks and (python := shutil.which(request["command"][0], path=request["environment"].get("PATH"))):
        around = surroundings.describe(python)
        forked = fork_client.Supervisor(forks, request["environment"], around, output.fileno(), [*descriptors])
        if forked.forked:
            return forked
    own = {key: os.environ[key] for key in NEEDED if key in os.environ} | {"PYTHONPATH": str(PROJECT)}
    # A separate session, so that signals of the terminal reach only this process.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", supervisor.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output,
        env=own, pass_fds=descriptors, start_new_session=True, bufsize=0,
    )  # fmt: skip


def _answer(process: subprocess.Popen[bytes] | fork_client.Supervisor, request: bytes) -> bytes:
    """Send the supervisor a request and read its final answer; empty if it was killed."""
    assert process.stdin and process.stdout
    # Standard input stays open, because its end would tell the supervisor that this process has ended.
    with suppress(BrokenPipeError):
        while request:
            request = request[process.stdin.write(request) or 0 :]
    return process.stdout.read()


def _left(said: bytes, before: set[int]) -> list[int]:
    """Processes that could not be ended; without a supervisor's answer, end them here first."""
    if said:
        return list(json.loads(said)["left"])
    return process_tree.end_processes(before, supervisor.STAGES["abandoned"])


def _close(process: subprocess.Popen[bytes] | fork_client.Supervisor, busy: bool) -> None:
    """Disconnect from the supervisor; busy: it still waits for processes, and holds the GPU until they end."""
    assert process.stdin and process.stdout
    process.stdin.close()
    process.stdout.close()
    if not busy:
        process.wait()


@contextmanager
def _adopting() -> Iterator[None]:
    """Adopt orphaned processes below this one while the body runs, whatever their session."""
    process_tree.adopt_orphans(True)
    try:
        yield
    finally:
        process_tree.adopt_orphans(False)


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Turn ending signals into SystemExit while the body runs; signals that were ignored stay ignored."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.getsignal(number) for number in HEEDED}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def find_own_folder() -> str:
    """Return the folder on Python's path by which this package is found; empty if it is installed."""
    return "" if INSTALLED in PROJECT.parts else str(PROJECT)


def join_python_path() -> str:
    """Return PYTHONPATH for a process that has to find this package, and that does not look in its current folder."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(filter(None, [find_own_folder(), *given]))
