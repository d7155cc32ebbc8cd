"""Represents a program where it was started, while a fork of `forks.py` runs it.

Its command is `fork_client.py SOCKET SCRIPT` for a script; a job's supervisor is represented by a `Supervisor`, and a
program below a profiler by a `Profiled`.
"""

import marshal
import os
import signal
import socket
import sys

NUMBER = 8
# A server below a profiler answers at once, unless forking hangs.
ANSWER_S = 20.0
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def ask(path: str, words: list[str], numbers: list[int]) -> None:
    """Ask the fork server to run a program in place of this process, and end with the program's exit code.

    Returns only if the server cannot be reached or refuses, because its environment differs from the program's, or if
    it is another user's.

    Args:
        path: the server's socket.
        words: the program's command line.
        numbers: numbers of the open files that the program inherits.
    """
    with socket.socket(socket.AF_UNIX) as server:
        # A signal that comes before the program can get it waits.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:
            running = _begin(server, path, _request(words, dict(os.environ), numbers, []), numbers)
            for number in FORWARDED if running else ():
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, lambda got, _: os.kill(running, got))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if not running:
            return
        answer = server.recv(NUMBER)
    # There is no answer if the server was killed.
    code = int.from_bytes(answer, "big", signed=True) if answer else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


class Supervisor:
    """A job's supervisor that a server has forked; it is driven like subprocess.Popen."""

    def __init__(self, path: str, environment: dict[str, str], around: list[object], log: int, kept: list[int]) -> None:
        """Have it forked, unless the server refuses; then `forked` is False.

        path: the server's socket. environment: of the job's program. around: its surroundings. log: descriptor of the
        log. kept: further descriptors that it has to inherit.
        """
        asked, told = os.pipe()
        said, answered = os.pipe()
        self.stdin, self.stdout = os.fdopen(told, "wb", buffering=0), os.fdopen(said, "rb", buffering=0)
        self._server = socket.socket(socket.AF_UNIX)
        request = _request(["", "supervisor"], environment, [0, 1, 2, *kept], around)
        self.forked = bool(_begin(self._server, path, request, [asked, answered, log, *kept]))
        os.close(asked)
        os.close(answered)
        if not self.forked:
            self.stdin.close()
            self.stdout.close()
            self._server.close()

    def terminate(self) -> None:
        """Send it a SIGTERM, unless it has ended."""
        try:  # noqa: SIM105
            self._server.send(b".")
        except OSError:
            pass

    def wait(self) -> None:
        """Wait until it has ended, and with it all that it ran."""
        try:  # noqa: SIM105
            self._server.recv(NUMBER)
        except OSError:
            pass
        self._server.close()


def is_there(path: str) -> bool:
    """Whether a server takes requests."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"\0{path}")
        except OSError:
            return False
        return True


class Profiled:
    """A program that a server below a profiler has forked; it is killed if this process ends first, or closes it."""

    def __init__(
        self, path: str, words: list[str], environment: dict[str, str], around: list[object], kept: list[int]
    ) -> None:
        """Have it forked, unless the server refuses or is busy; `process` is then 0.

        path: the server's socket. words: the program's command line. around: its surroundings. kept: descriptors that
        it keeps open.
        """
        self._server = socket.socket(socket.AF_UNIX)
        self._server.settimeout(ANSWER_S)
        numbers = [0, 1, 2, *kept]
        self.process = _begin(self._server, path, _request(words, environment, numbers, around), numbers)

    def fileno(self) -> int:
        """Return the descriptor that can be read once the program has ended."""
        return self._server.fileno()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return its exit code as subprocess does; None if it has not ended within these seconds."""
        self._server.settimeout(seconds)
        try:
            answer = self._server.recv(NUMBER)
        except (TimeoutError, BlockingIOError):
            return None
        except OSError:
            answer = b""
        # There is no answer if the server was killed.
        return int.from_bytes(answer, "big", signed=True) if answer else 1

    def close(self) -> None:
        """Have it killed, unless it has ended."""
        self._server.close()


def _request(words: list[str], environment: dict[str, str], numbers: list[int], around: list[object]) -> bytes:
    os.umask(mask := os.umask(0))
    # Without pathlib, which takes longer to import than all of this.
    return marshal.dumps((words, os.getcwd(), environment, mask, numbers, around))  # noqa: PTH109


def _begin(server: socket.socket, path: str, request: bytes, numbers: list[int]) -> int:
    """Send a request, and return the number of the program's process; 0 if there is none."""
    try:
        server.connect(f"\0{path}")
        # Process, user and group, 4 bytes each.
        owner = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8]
        if int.from_bytes(owner, sys.byteorder) != os.getuid():
            return 0
        socket.send_fds(server, [len(request).to_bytes(NUMBER, "big")], numbers)
        server.sendall(request)
        return int.from_bytes(server.recv(NUMBER), "big")
    except OSError:
        # The server has ended, or the program has a network of its own, in which there is no such socket.
        return 0


if __name__ == "__main__":
    ask(sys.argv[1], [sys.orig_argv[0], sys.argv[2]], [0, 1, 2])
    os.execv(sys.orig_argv[0], [sys.orig_argv[0], sys.argv[2]])
