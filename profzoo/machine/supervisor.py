"""Runs one command and ends all its processes: at its end, at its time limit, or when its caller is gone.

`profzoo.machine.processes` starts this module, writes a request to its standard input, and keeps that open. The end of
standard input means that the caller has ended, for whatever reason. The answer on standard output says how the command
ended.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from profzoo.machine import namespace, process_tree, scratch_folder
from profzoo.machine.log_cap import CappedLog

ASKED, ANSWERED, LOG = 0, 1, 2
HEEDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
LATE = 124
TOLD_TO_END = "was told to end early: by its run, or by a batch system at its time limit"
# By the way in which the command ended: pairs of the seconds that remaining processes get, and the signal sent before.
# SIGKILL comes within five seconds, so that the next job can have the GPU. Processes in the kernel may take longer.
STAGES: Mapping[str, tuple[tuple[float, int], ...]] = {
    "ended": ((2, 0), (1, signal.SIGTERM), (60, signal.SIGKILL)),
    "late": ((1.5, signal.SIGTERM), (60, signal.SIGKILL)),
    "signal": ((1.5, signal.SIGTERM), (60, signal.SIGKILL)),
    "abandoned": ((0.5, signal.SIGTERM), (60, signal.SIGKILL)),
}


def main() -> int:
    """Run the request from standard input; returns 0."""
    process_tree.adopt_orphans(True)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    # This comes before the handlers, because a signal that is caught earlier would be lost.
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (*HEEDED, signal.SIGCHLD):
        # Signals that are ignored, for example by nohup, stay ignored.
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    request = _request()
    if not request:
        return 0
    printed = CappedLog(LOG)
    child = _started(request, printed)
    why, code = _watched(child, request["seconds"], wake, printed) if child else ("ended", 127)
    for number in HEEDED:
        signal.signal(number, signal.SIG_IGN)
    if why in ("signal", "abandoned"):
        _say(TOLD_TO_END)
    left = process_tree.end_processes((), STAGES[why], printed.wait)
    printed.close()
    if request["scratch"]:
        scratch_folder.remove_scratch(Path(request["scratch"]))
    if why == "late":
        _say(request["over"])
        code = LATE
    with suppress(BrokenPipeError):
        os.write(ANSWERED, json.dumps({"code": code, "left": left}).encode())
    os.close(ANSWERED)
    while process_tree.list_alive(()):
        # This process also holds the GPU's lock, and must hold it until the GPU is free.
        time.sleep(1)
    return 0


def _request() -> dict[str, Any]:
    """Read the request; empty if the caller ended before it sent one."""
    said = b""
    while not said.endswith(b"\n"):
        part = os.read(ASKED, 1 << 16)
        if not part:
            return {}
        said += part
    return dict(json.loads(said))


def _started(request: Mapping[str, Any], printed: CappedLog) -> subprocess.Popen[bytes] | None:
    """Start the command, which dies with this process; None, with a line in the log, if it cannot start."""
    own = os.getpid()
    try:
        return subprocess.Popen(
            request["command"], stdin=subprocess.DEVNULL, stdout=printed.given, stderr=printed.given,
            env=request["environment"], pass_fds=request["held"], start_new_session=True,
            preexec_fn=lambda: _prepare(own, request["apart"]),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"{request['command'][0]} cannot be started: {getattr(error, 'strerror', None) or error}")
        return None
    finally:
        os.close(printed.given)


def _prepare(supervisor: int, apart: bool) -> None:
    """Set up a forked process before it executes the command."""
    process_tree.die_with(supervisor)
    if apart:
        namespace.enter_namespace()


def _say(line: str) -> None:
    """Write a line into the log, if its disk has room."""
    with suppress(OSError):
        os.write(LOG, f"profzoo: {line}\n".encode())


def _watched(child: subprocess.Popen[bytes], seconds: float | None, wake: int, printed: CappedLog) -> tuple[str, int]:
    """Wait for the command to end; returns how it ended, and its exit code if it ended by itself."""
    deadline = time.monotonic() + seconds if seconds is not None else None
    waiting = select.poll()
    for file in (ASKED, wake, printed.source):
        waiting.register(file, select.POLLIN)
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return "late", LATE
        # poll takes milliseconds as a C int, which limits the time.
        ready = [file for file, _ in waiting.poll(None if left is None else min(left * 1000 + 1, 1e8))]
        if ASKED in ready:
            return "abandoned", 128 + signal.SIGKILL
        if printed.source in ready and not printed.read():
            waiting.unregister(printed.source)
        if wake in ready:
            came = os.read(wake, 1 << 10)
            if any(number in came for number in HEEDED):
                return "signal", 128 + signal.SIGTERM
            if (code := _ended(child)) is not None:
                return "ended", code


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """Exit code of the command if it has ended; reaps other processes that ended."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return child.returncode
        if process == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
        if not process:
            return child.returncode


if __name__ == "__main__":
    sys.exit(main())
