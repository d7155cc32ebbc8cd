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
from collections.abc import Mapping, Sequence
from signal import SIGKILL
from typing import BinaryIO, Protocol

from profzoo.experiments import fork_server

# Words of a command that can be forked: Python, -m, a module, and the cell's model.
FORKABLE_WORDS = 4


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

    def __init__(self, words: Sequence[str]) -> None:
        """words: the command of the first process, from which the server knows what to prepare."""
        python, _, module, *rest = words
        self.codes: dict[int, int] = {}
        self._count, self._gone = 0, False
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", fork_server.__name__, str(theirs.fileno()), module, *rest], pass_fds=[theirs.fileno()]
            )
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
            "number": self._count, "kill": False, "words": list(words[3:]), "variables": dict(variables),
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


class ProcessStarter:
    """Starts processes, and keeps the servers that fork them."""

    def __init__(self, fork: bool) -> None:
        """fork: whether processes may be forked."""
        self._fork = fork
        self._servers: dict[tuple[str, ...], Server] = {}
        self.separate_why = ""

    def close(self) -> None:
        """End all servers, and with them the processes that these forked."""
        for server in self._servers.values():
            server.close()

    def prepare(self, words: Sequence[str]) -> bool:
        """Start the server of a command, if it has none yet; returns whether its processes are forked."""
        return self._server(words) is not None

    def start(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        to: BinaryIO | None = None,
        shift: str = "",
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
        return subprocess.Popen(words, env={**os.environ, **variables}, stdout=to, stderr=to, pass_fds=inherited)

    def _server(self, words: Sequence[str]) -> Server | None:
        if not self._fork or len(words) < FORKABLE_WORDS or words[1] != "-m":
            return None
        key = (*words[: FORKABLE_WORDS - 1], words[FORKABLE_WORDS - 1].partition("@")[0])
        if key not in self._servers:
            self._servers[key] = Server(words)
            if why := self._servers[key].why:
                self.separate_why = why
                print(f"profzoo: each process starts by itself, because {why}", file=sys.stderr, flush=True)
        return self._servers[key] if not self._servers[key].why else None
