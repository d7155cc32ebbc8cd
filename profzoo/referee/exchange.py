"""Talks with a contestant, a process that runs one state: messages over a socket, of a header in JSON and bytes."""

import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from profzoo.errors import ConfigError
from profzoo.experiments.forked_runs import SAFE, ProcessStarter, Started
from profzoo.machine import namespace, process_tree
from profzoo.referee import envelope
from profzoo.referee.states import State

CONTESTANT, SOCKET = "profzoo.referee.contestant", "PROFZOO_REFEREE_SOCKET"
REFERENCE, CANDIDATE = "reference", "candidate"
COMMAND = (sys.executable, SAFE, "-m", CONTESTANT, "go")
# A variable of contestants' processes, by which processes that they start are known.
MARK = "PROFZOO_CONTESTANT"

# Bound here, before any judged code is imported.
_dump, _load, _pack, _unpack = json.dumps, json.loads, struct.pack, struct.unpack
# Bytes of the sizes of header and content, and of the largest header.
SIZES, LONGEST_HEADER = 16, 1 << 24
# States in /proc of processes that a signal has stopped, and seconds between looks at a process that is waited for.
STOPPED, LOOK_S = "Tt", 0.25
# Signals that no fault of a process's own sends, and seconds until it is known how a process ended.
KILLED, ENDING_S = {signal.SIGKILL, signal.SIGTERM}, 1.0
# What the only process is asked for that runs while no code of the candidate does.
ALONE = "prepare"

Header = dict[str, Any]


class Connection(Protocol):
    """What messages are sent and received by: a socket, or a Side's."""

    def sendall(self, content: bytes) -> None:
        """Send all of it."""

    def recv_into(self, buffer: memoryview) -> int:
        """Receive some bytes; returns how many, 0 once the other side has gone."""


def send(connection: Connection, header: Mapping[str, Any], content: bytes = b"") -> None:
    """Send a message."""
    said = _dump(header).encode()
    connection.sendall(_pack("<QQ", len(said), len(content)) + said)
    if content:
        connection.sendall(content)


def receive(connection: Connection, most: int = 1 << 40) -> tuple[Header, bytes]:
    """Receive a message; most: bytes that its content may have.

    Raises:
        EOFError: the other side has gone.
        ValueError: it is no message, or too large.
        TimeoutError: none came within the socket's time limit.
    """
    header, content = _unpack("<QQ", _receive_bytes(connection, SIZES))
    if header > LONGEST_HEADER or content > most:
        raise ValueError(f"a message of {header} + {content} bytes is longer than what was asked for")
    said = _load(_receive_bytes(connection, header))
    if not isinstance(said, dict):
        raise ValueError("a header is no object")
    return said, _receive_bytes(connection, content)


def _receive_bytes(connection: Connection, count: int) -> bytes:
    held = bytearray(count)
    view, at = memoryview(held), 0
    while at < count:
        got = connection.recv_into(view[at:])
        if not got:
            raise EOFError("the other side has gone")
        at += got
    return bytes(held)


class RefusedError(Exception):
    """A candidate that is not compared; outcome: different or invalid."""

    outcome = "invalid"


class InvalidError(RefusedError):
    """A candidate whose times say nothing: its process did what falsifies them."""


class DifferentError(RefusedError):
    """A candidate that does not compute what the reference computes."""

    outcome = "different"


@dataclass(frozen=True)
class Asked:
    """Results that are asked for: of which leaf, in which rows (None: all), at which places (None: all)."""

    leaf: int
    rows: tuple[int, ...] | None
    places: np.ndarray | None


class Side:
    """A process that runs a state."""

    def __init__(self, name: str, state: State, starter: ProcessStarter, output: Path, limit_s: float) -> None:
        """name: of the side. output: file for what it prints. limit_s: seconds that answers may take."""
        self.name, self.state, self._output, self._limit_s = name, state, output, limit_s
        self._asked, self._before = "", namespace.count_oom_kills()
        self._mine, theirs = socket.socketpair()
        # Processes that compile would stay beside the contestant.
        variables = {SOCKET: str(theirs.fileno()), MARK: "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        with theirs, output.open("wb") as to:
            self._process: Started = starter.start(COMMAND, variables, to, SOCKET)
        self._mine.setblocking(False)
        # Told before any code of the state is imported.
        self.process = 0
        self.process = int(self.answer()[0]["process"])
        self._around = self._surroundings()

    def tell(self, ask: str, content: bytes = b"", **said: Any) -> None:
        """Ask for something, without waiting for the answer."""
        self._asked = ask
        try:
            send(self, {"ask": ask, **said}, content)
        except TimeoutError:
            self._refuse("it does not listen", InvalidError)
        except OSError:
            self._refuse_ended()

    def answer(self, most: int = 0) -> tuple[Header, bytes]:
        """Wait for the answer; most: bytes that belong to it.

        Raises:
            RefusedError: the candidate fails.
            ConfigError: the reference fails.
        """
        try:
            header, content = receive(self, most)
        except TimeoutError:
            self._refuse("it does not answer", InvalidError)
        except (EOFError, OSError):
            self._refuse_ended()
        except ValueError as error:
            self._refuse(f"it says what nobody asked for ({error})", InvalidError)
        if "failed" in header:
            told = envelope.quote(str(header["failed"]))
            if header["outcome"] == "error":
                raise ConfigError(f"{self.state.word}: {told}")
            self._refuse(told, InvalidError if header["outcome"] == "invalid" else DifferentError)
        if len(content) != most:
            self._refuse(f"it gives {len(content)} bytes where {most} were asked for", InvalidError)
        return header, content

    def ask(self, ask: str, content: bytes = b"", most: int = 0, **said: Any) -> tuple[Header, bytes]:
        """Ask for something, and wait for the answer."""
        self.tell(ask, content, **said)
        return self.answer(most)

    def _refuse(self, why: str, error: type[RefusedError]) -> Any:
        lines = self._output.read_text(errors="replace").split("\n") if self._output.exists() else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        told = f"{why}{f'; it printed: {envelope.quote(last)}' if last and error is InvalidError else ''}"
        if self.name == CANDIDATE:
            raise error(f"the candidate: {told}")
        raise ConfigError(f"the reference '{self.state.word}' cannot be run: {told}")

    def limit(self, seconds: float) -> None:
        """Set how long answers may take."""
        self._limit_s = seconds

    def sendall(self, content: bytes) -> None:
        """Send all of it, as `send` does, while the process listens."""
        left = memoryview(content)
        while left:
            self._wait(select.POLLOUT)
            left = left[self._mine.send(left) :]

    def recv_into(self, buffer: memoryview) -> int:
        """Receive some bytes, as `receive` does, while the process works."""
        self._wait(select.POLLIN)
        return self._mine.recv_into(buffer)

    def _wait(self, event: int) -> None:
        """Wait until the socket can be used.

        Raises:
            TimeoutError: it takes longer than the limit.
            InvalidError: the process was stopped by a signal.
        """
        ready, ends, stopped = select.poll(), time.monotonic() + self._limit_s, 0
        ready.register(self._mine, event)
        while not ready.poll(1000 * LOOK_S):
            if time.monotonic() > ends:
                raise TimeoutError
            fields = process_tree.read_stat(self.process) if self.process else []
            # Whoever stops and continues all processes, as a terminal does, may continue this one first.
            stopped = stopped + 1 if fields and fields[0] in STOPPED else 0
            if stopped > 1:
                self._refuse_signal("was stopped by a signal that the referee did not send")

    def _refuse_ended(self) -> None:
        """Refuse a side whose process has ended, by what ended it."""
        ends = time.monotonic() + ENDING_S
        while (code := self._process.poll()) is None and time.monotonic() < ends:
            time.sleep(ENDING_S / 100)
        if code is None or -code not in KILLED:
            self._refuse("its process ended", InvalidError)
        if namespace.count_oom_kills() > self._before:
            self._refuse("its process was killed, and the kernel had too little memory meanwhile", InvalidError)
        self._refuse_signal("was killed by a signal that the referee did not send")

    def _refuse_signal(self, why: str) -> None:
        """Refuse the candidate for a signal to either side, as only its code runs besides."""
        if self.name == REFERENCE and self._asked != ALONE:
            raise InvalidError(f"the candidate: the reference's process {why}")
        self._refuse(f"its process {why}", InvalidError)

    def stop(self) -> None:
        """Stop the process until it goes on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process go on, and wait until it does."""
        self._signal(signal.SIGCONT)
        self.ask("ping")

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, number)

    def used_s(self, ended: bool = False) -> float:
        """CPU seconds of the process; ended: those of processes that it has started and that have ended."""
        fields = process_tree.read_stat(self.process)
        ticks = sum(map(int, fields[13:15] if ended else fields[11:13])) if fields else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def wanted_s(self) -> float:
        """Seconds that its threads were at work, or waited for a core, which on a busy machine is most of them."""
        found = []
        for thread in Path(f"/proc/{self.process}/task").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                found.append(sum(map(int, (thread / "schedstat").read_text().split()[:2])) / 1e9)
        return sum(found) if found else self.used_s()

    def used_by_threads(self) -> dict[str, float]:
        """CPU seconds of each thread."""
        found = {}
        for thread in Path(f"/proc/{self.process}/task").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                fields = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found[thread.name] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return found

    def explain_others(self) -> str:
        """Say how many processes it has started that still run; empty if there is none."""
        others = process_tree.list_descendants(self.process)
        return f"it has started {len(others)} other process{'es' if len(others) > 1 else ''}" if others else ""

    def has_changed(self) -> bool:
        """Whether the process has other cores or another priority than when it began."""
        return self._surroundings() != self._around

    def _surroundings(self) -> tuple[int, int, list[int]]:
        try:
            cores = sorted(os.sched_getaffinity(self.process))
            return os.getpriority(os.PRIO_PROCESS, self.process), os.sched_getscheduler(self.process), cores
        except ProcessLookupError:
            return 0, 0, []

    def close(self) -> None:
        """End the process and all that it has started."""
        self._signal(signal.SIGCONT)
        self._mine.close()
        for process in process_tree.list_descendants(self.process):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def give(self, asked: Sequence[Asked], results: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
        """Ask for values of the last go; results: what the results are like."""
        said = [{"leaf": one.leaf, "rows": one.rows, "count": 0 if one.places is None else one.places.shape[1]}
                for one in asked]  # fmt: skip
        places = b"".join(one.places.tobytes() for one in asked if one.places is not None)
        shapes = [_shape(one, results[one.leaf]) for one in asked]
        _, content = self.ask("give", places, 8 * sum(map(math.prod, shapes)), asked=said)
        found, at = [], 0
        for one, shape in zip(asked, shapes, strict=True):
            kind = np.float64 if is_number(results[one.leaf]) else np.int64
            size = 8 * math.prod(shape)
            found.append(np.frombuffer(content[at : at + size], dtype=kind).reshape(shape))
            at += size
        return found


def _shape(asked: Asked, result: Mapping[str, Any]) -> tuple[int, int]:
    rows = result["rows"] if asked.rows is None else len(asked.rows)
    width = result["size"] if asked.places is None else asked.places.shape[1]
    return rows, width * (2 if "complex" in result["dtype"] else 1)


def is_number(result: Mapping[str, Any]) -> bool:
    """Whether the numbers of a result are not whole."""
    return any(kind in result["dtype"] for kind in ("float", "complex"))


def list_children() -> set[int]:
    """Return the children of this process, with those that it has adopted."""
    own = str(os.getpid())
    return {process for process in process_tree.running_processes() if process_tree.read_stat(process)[1:2] == [own]}


def find_strays(before: set[int]) -> list[int]:
    """Return processes that contestants started and left behind; before: children of this process without them."""
    found = []
    for process in list_children() - before:
        with suppress(OSError):
            told = Path(f"/proc/{process}/environ").read_bytes() + Path(f"/proc/{process}/cmdline").read_bytes()
            if MARK.encode() in told or CONTESTANT.encode() in told:
                found.append(process)
    return found
