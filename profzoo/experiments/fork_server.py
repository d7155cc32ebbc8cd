"""Forks measured processes from one that has imported everything: `python -m ... DESCRIPTOR MODULE WORDS ...`.

`forked_runs` starts this program. It imports the module (such as `models.run`), lets the module's `prepare` do for
these words what every process would do before it needs a device, and then forks one process per request; each runs the
module's `main`. A fork inherits memory, but no other threads, and CUDA does not work in it if it was initialised
before. The program therefore forks only if it has a single thread and CUDA is untouched; otherwise it says why not and
ends. Requests and answers are JSON messages on the socket with the given descriptor. The program ends when the socket
is closed by the other side, and its processes end with it.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypedDict

from profzoo.machine import forks, job_child, process_tree, surroundings

# Function that runs a command line and returns its exit code.
Program = Callable[[Sequence[str]], int]
# The longest message, and the most descriptors in one: output and shifts.
MESSAGE_BYTES, DESCRIPTORS = 1 << 17, 2


class Request(TypedDict):
    """A process to fork, or to kill.

    number: of the process, as the client counts. kill: whether to kill it. words: its command line. variables: changes
    of its environment. printed: whether a descriptor for its output comes with the message. shift: name of the variable
    for the descriptor of its shifts; empty for none.
    """

    number: int
    kill: bool
    words: list[str]
    variables: dict[str, str]
    printed: bool
    shift: str


def prepare(module: str, words: Sequence[str]) -> Program:
    """Import the module, and let it prepare for the words; returns its `main`.

    Raises:
        Exception: whatever imports or preparation raise.
    """
    with forks.importing():
        program = importlib.import_module(module)
        program.prepare(words)
    main: Program = program.main
    return main


class ForkServer:
    """Forks processes on request, and reports their ends."""

    def __init__(self, asked: socket.socket, program: Program) -> None:
        """asked: where requests come from; program: what each process runs."""
        self._asked, self._program = asked, program
        self._running: dict[int, int] = {}
        self._wake, waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(waker, False)
        # The signal of an ended child wakes this process up.
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> int:
        """Serve until the client has gone; returns an exit code, which in a forked process is that of the program."""
        while True:
            ready, _, _ = select.select([self._asked.fileno(), self._wake], [], [])
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 1 << 10)
                self._report_ended()
            if self._asked.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(self._asked, MESSAGE_BYTES, DESCRIPTORS)
                if not message:
                    return 0
                request: Request = json.loads(message)
                try:
                    if self._handle(request, descriptors):
                        return self._become(request, descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)

    def _report_ended(self) -> None:
        for process in list(self._running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._say(number=self._running.pop(process), code=os.waitstatus_to_exitcode(status))

    def _say(self, **said: int | str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._asked.send(json.dumps(said).encode())

    def _handle(self, request: Request, descriptors: Sequence[int]) -> bool:
        """Kill a process, or fork one; True in the forked process."""
        if request["kill"]:
            for process, number in self._running.items():
                if number == request["number"]:
                    os.kill(process, signal.SIGKILL)
            return False
        sys.stdout.flush()
        sys.stderr.flush()
        if child := os.fork():
            self._running[child] = request["number"]
            return False
        return True

    def _become(self, request: Request, descriptors: list[int]) -> int:
        """In a forked process: take over what the request says, and run the program; returns its exit code."""
        process_tree.die_with(os.getppid())
        forks.reset_signals()
        os.close(self._wake)
        self._asked.close()
        os.environ.update(request["variables"])
        if request["printed"]:
            forks.take_files(dict.fromkeys((1, 2), descriptors[0]), close=False)
        if request["shift"]:
            # The program duplicates it before this copy is closed, so it gets one of its own.
            os.environ[request["shift"]] = str(os.dup(descriptors[-1]))
        forks.draw_anew()
        return forks.exit_code(lambda: self._program(request["words"]))


def main() -> int:
    """Run the command line; returns the exit code."""
    process_tree.die_with(os.getppid())
    job_child.enter_job()
    descriptor, module, *words = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as asked:
        # Programs that an import starts have no part in it.
        asked.set_inheritable(False)
        try:
            program = prepare(module, words)
            why = surroundings.explain_unsafe()
        except Exception as error:
            why = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        asked.send(json.dumps({"why": why}).encode())
        return 1 if why else ForkServer(asked, program).serve()


if __name__ == "__main__":
    forks.end_process(main())
