"""Runs one command and ends all its processes: at its end, at its time limit, or when its caller is gone.

`profzoo.machine.processes` starts this module, writes a request to its standard input, and keeps that open. The end of
standard input means that the caller has ended, for whatever reason. The answer on standard output says how the command
ended.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from profzoo.machine import namespace, process_tree, scratch_folder

# Caps the size of a job's log: keeps the beginning and the end of the output, and drops the middle.
#
# The beginning is written at once. The end is written when the job has ended, because only then it is known.

# Sizes of a log and of the pipe; with a large pipe, a program that prints much waits less.
LOG_BYTES = 8 << 20
PIPE_BYTES = 1 << 20
# The end begins with a whole line if a line begins within this number of bytes.
LINE_BYTES = 4096


class CappedLog:
    """A pipe whose content goes to a file; programs print to `given`, this process reads from `source`.

    Args:
        target: descriptor of the file. limit: bytes that it gets at most, but for a line between beginning and end.
    """

    def __init__(self, target: int, limit: int = LOG_BYTES) -> None:
        self.source, self.given = os.pipe()
        with suppress(OSError):
            fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self.source, False)
        self._target = target
        self._first = limit // 2
        # A ring buffer of the last bytes; `_came` counts all bytes that were written to it.
        self._ring = memoryview(bytearray(limit - self._first))
        self._came = 0

    def read(self) -> bool:
        """Read available output; False once no process can print any more."""
        try:
            if not self._first:
                count = os.readv(self.source, [self._ring[self._came % len(self._ring) :]])
                self._came += count
                return bool(count)
            part = os.read(self.source, min(self._first, PIPE_BYTES))
        except BlockingIOError:
            return True
        self._first -= len(part)
        self._write(part)
        return bool(part)

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for output and read it, so that no program blocks on a full pipe."""
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        waiting.register(self.source, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if waiting.poll(left * 1000 + 1) and not self.read():
                time.sleep(max(deadline - time.monotonic(), 0))

    def close(self) -> None:
        """Read the rest of the pipe and write the end into the file; later writers get a broken pipe."""
        room, came = 2 * PIPE_BYTES, -1
        while room > 0 and came != self._came - self._first:
            came = self._came - self._first
            self.read()
            room -= self._came - self._first - came
        os.close(self.source)
        place = self._came % len(self._ring)
        lost = self._came - len(self._ring)
        if lost <= 0:
            self._write(self._ring[:place] if lost else self._ring)
            return
        last = bytes(self._ring[place:]) + bytes(self._ring[:place])
        begin = last.find(b"\n", 0, LINE_BYTES) + 1
        self._write(f"\n... {lost + begin:,} bytes left out ...\n".encode())
        self._write(last[begin:])

    def _write(self, part: bytes | memoryview) -> None:
        """Write to the file; on a full disk, drop the output so that the program can go on."""
        with suppress(OSError):
            while part:
                part = part[os.write(self._target, part) :]


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


def main(fork: Callable[[Mapping[str, Any], int], int] | None = None) -> int:
    """Run the request from standard input; returns 0.

    fork: function that forks the command's program from this process and returns its number, instead of starting it;
    it takes the request and the descriptor of the program's output.
    """
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
    child = _forked(fork, request, printed) if fork else _started(request, printed)
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


def _forked(
    fork: Callable[[Mapping[str, Any], int], int], request: Mapping[str, Any], printed: CappedLog
) -> SimpleNamespace:
    """Fork the command's program, which dies with this process."""
    try:
        return SimpleNamespace(pid=fork(request, printed.given), returncode=None)
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


def _watched(child: Any, seconds: float | None, wake: int, printed: CappedLog) -> tuple[str, int]:
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


def _ended(child: Any) -> int | None:
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
