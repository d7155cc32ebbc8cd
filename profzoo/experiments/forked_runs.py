"""Starts measured processes by forking them from one that has imported what they need, or each by itself.

Importing torch, its compiler and a model's libraries takes seconds, and so does building a large network. Processes of
one measurement do the same there, so one program (`fork_server`) does it once, and each process begins as its fork.
Programs that run different models have servers of their own. Where forking is not safe, processes start by themselves,
and the reason is printed once.
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from signal import SIGKILL
from typing import BinaryIO, Protocol

from profzoo.experiments import fork_server
from profzoo.machine import processes

# Words of a command that can be forked: Python, -m, a module, and the cell's model. SAFE may come before -m.
FORKABLE_WORDS = 4
# Option of Python by which it imports nothing from the current folder.
SAFE = "-P"


class Started(Protocol):
    """A started process, as subprocess.Popen has it."""

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""

    def kill(self) -> None:
        """Kill the process."""


class ForkedProcess:
    """A process that a server forked; it is driven like subprocess.Popen."""

    def __init__(self, server: "Server", number: int) -> None:
        self._server, self._number = server, number

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        self._server.listen(0.0)
        return self._server.codes.get(self._number)

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        while (code := self._server.codes.get(self._number)) is None:
            self._server.listen(None)
        return code

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        if self.poll() is None:
            self._server.kill(self._number)
            self.wait()


class Server:
    """A running `fork_server`; codes: exit codes of its ended processes, by number."""

    def __init__(self, words: Sequence[str], place: str | None = None) -> None:
        """words: the command of the first process, from which the server knows what to prepare.

        place: its current folder; None for that of this process.
        """
        self._named = words.index("-m") + 1
        python, module, rest = words[: self._named], words[self._named], words[self._named + 1 :]
        self.codes: dict[int, int] = {}
        self._count, self._gone = 0, False
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*python, fork_server.__name__, str(theirs.fileno()), module, *rest],
                pass_fds=[theirs.fileno()], cwd=place, env={**os.environ, **_find_package(place)},
            )  # fmt: skip
        said = self._mine.recv(fork_server.MESSAGE_BYTES)
        # Why processes cannot be forked; empty if they can.
        self.why = str(json.loads(said)["why"]) if said else f"its server ended with {self._process.wait()}"

    def start(
        self, words: Sequence[str], variables: Mapping[str, str], to: BinaryIO | None, shift: str
    ) -> ForkedProcess:
        """Fork a process; the arguments are those of ProcessStarter.start."""
        self._count += 1
        inherited = [to.fileno()] if to else []
        inherited += [int(variables[shift])] if shift else []
        request: fork_server.Request = {
            "number": self._count, "kill": False, "words": list(words[self._named + 1 :]), "variables": dict(variables),
            "printed": bool(to), "shift": shift,
        }  # fmt: skip
        self._send(request, inherited)
        return ForkedProcess(self, self._count)

    def kill(self, number: int) -> None:
        """Have a process killed."""
        self._send({"number": number, "kill": True, "words": [], "variables": {}, "printed": False, "shift": ""}, [])

    def _send(self, request: fork_server.Request, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._mine, [json.dumps(request).encode()], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            self._end()

    def listen(self, seconds: float | None) -> None:
        """Note the ends of processes that were reported; wait for a report for so long, None: until there is one."""
        while not self._gone and select.select([self._mine], [], [], seconds)[0]:
            try:
                said = self._mine.recv(fork_server.MESSAGE_BYTES)
            except ConnectionResetError:
                said = b""
            if not said:
                return self._end()
            told = json.loads(said)
            self.codes[told["number"]] = told["code"]
            seconds = 0.0

    def _end(self) -> None:
        """Note that the server has gone: the kernel has killed what it had forked."""
        self._gone = True
        for number in range(1, self._count + 1):
            self.codes.setdefault(number, -SIGKILL)

    def close(self) -> None:
        """End the server and all its processes."""
        self._mine.close()
        self._process.kill()
        self._process.wait()


def _find_package(place: str | None) -> dict[str, str]:
    """Return what a process in a folder of its own needs to find this package."""
    return {"PYTHONPATH": processes.join_python_path()} if place else {}


class ProcessStarter:
    """Starts processes, and keeps the servers that fork them.

    A command with SAFE runs in an empty folder, so that relative folders of PYTHONPATH hold nothing either.
    """

    def __init__(self, fork: bool) -> None:
        """fork: whether processes may be forked."""
        self._fork = fork
        self._servers: dict[tuple[str, ...], Server] = {}
        self._empty: tempfile.TemporaryDirectory[str] | None = None
        self.separate_why = ""

    def close(self) -> None:
        """End all servers, and with them the processes that these forked."""
        for server in self._servers.values():
            server.close()
        if self._empty:
            self._empty.cleanup()

    def prepare(self, words: Sequence[str]) -> bool:
        """Start the server of a command, if it has none yet; returns whether its processes are forked."""
        return self._server(words) is not None

    def start(
        self, words: Sequence[str], variables: Mapping[str, str], to: BinaryIO | None = None, shift: str = ""
    ) -> Started:
        """Start a process.

        Args:
            words: its command.
            variables: changes of its environment.
            to: file for its output; None for the output of this process.
            shift: name of the variable that holds the number of a descriptor that it has to inherit; empty for none.
        """
        if server := self._server(words):
            return server.start(words, variables, to, shift)
        inherited = [int(variables[shift])] if shift else []
        place = self._place(words)
        return subprocess.Popen(
            words, env={**os.environ, **_find_package(place), **variables}, stdout=to, stderr=to, pass_fds=inherited,
            cwd=place,
        )  # fmt: skip

    def _place(self, words: Sequence[str]) -> str | None:
        if list(words[1:2]) != [SAFE]:
            return None
        self._empty = self._empty or tempfile.TemporaryDirectory(prefix="profzoo-empty-")
        return self._empty.name

    def _server(self, words: Sequence[str]) -> Server | None:
        place = self._place(words)
        least = FORKABLE_WORDS + (place is not None)
        if not self._fork or len(words) < least or words[least - 3] != "-m":
            return None
        key = (*words[: least - 1], words[least - 1].partition("@")[0])
        if key not in self._servers:
            self._servers[key] = Server(words, place)
            if why := self._servers[key].why:
                self.separate_why = why
                print(f"profzoo: each process starts by itself, because {why}", file=sys.stderr, flush=True)
        return self._servers[key] if not self._servers[key].why else None
