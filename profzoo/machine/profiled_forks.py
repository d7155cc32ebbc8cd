"""Forks programs to which a profiler attaches, from a server that runs below it: `profiled_forks.py SOCKET MODULE ...`.

The server has imported the modules, and its forks wait for the profiler as they start CUDA. It runs one program at a
time, and forks each itself, below which the profiler looks for it. All else is as of `forks.py`.
"""

import functools
import itertools
import marshal
import os
import random
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from profzoo.machine import forks, process_tree, supervisor, surroundings

# The variable that tells a server the variables and surroundings with which the profiler was started.
BEGAN = "PROFZOO_BEGAN"
# First ports of ranges on which programs wait for a profiler, below those that the kernel gives to connections.
PORTS = range(20000, 32000, 64)
# Servers that end with this process, because their standard input then closes; and sockets that claim ports for them.
_started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


def variable_of(tool: str) -> str:
    """Name of the variable that names the socket and the process of a run's server below a profiler, and its port."""
    return f"{forks.FORKS}_{tool.upper()}"


def start(
    profiler: Sequence[str], modules: Sequence[str], variables: Mapping[str, str], python: str
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server below a profiler and return the profiler's process with the server's socket.

    The socket is there once the modules are imported. The server ends when the process's standard input is closed.

    Args:
        profiler: its program with the options for a program to which it attaches later.
        modules: modules that the server imports.
        variables: the environment of programs, without what the profiler sets.
        python: interpreter of programs.
    """
    path = f"profzoo-forks-{secrets.token_hex(8)}"
    told = marshal.dumps((dict(variables), surroundings.describe(python))).hex()
    process = subprocess.Popen(
        [*profiler, python, "-P", __file__, path, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**variables, "TMPDIR": tempfile.gettempdir(), BEGAN: told},
        start_new_session=True,
    )
    return process, path


def serve(tool: str, command: Callable[[int], Sequence[str]], variables: Mapping[str, str]) -> None:
    """Start the server of this run's programs below a profiler, if it is installed, and export its socket to jobs.

    command: returns the profiler's words for the first of the ports on which programs wait.
    """
    search = variables.get("PATH")
    if (python := shutil.which("python", path=search)) and (claimed := _claimed_ports()):
        port, claim = claimed
        program, *options = command(port)
        if not (found := shutil.which(program, path=search)):
            claim.close()
            return
        process, path = start([found, *options], [*itertools.chain(*forks.STAGES)], variables, python)
        _started.append((process, claim))
        os.environ[variable_of(tool)] = f"{path} {process.pid} {port}"


def _claimed_ports() -> tuple[int, socket.socket] | None:
    """Return the first of some free ports, and the socket by which no other run takes the same; None if none is."""
    for number in random.sample(range(len(PORTS)), len(PORTS)):
        claim, port = socket.socket(socket.AF_UNIX), PORTS[number]
        try:
            claim.bind(f"\0profzoo-ports-{port}")
            with socket.socket() as first:
                first.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        return port, claim
    return None


def main(path: str, *modules: str) -> list[str]:
    """Import the modules below a profiler and serve; returns only in processes that are to run a program: its words."""
    began, around = marshal.loads(bytes.fromhex(os.environ.pop(BEGAN)))
    forks.import_stage(forks.PROFILED, modules)
    # What the profiler or an import has set.
    found = {
        name: value for name, value in os.environ.items() if began.get(name) != value and name not in forks.OF_EACH_JOB
    }
    stage = forks.Stage(
        forks.PROFILED, forks.common_variables(began), around, (), forks.read_states(), found, frozenset(),
        surroundings.mapped_ranges(),
    )  # fmt: skip
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{path}")
        listener.listen(forks.WAITING)
        return serve_in_turn(listener, stage)


def serve_in_turn(listener: socket.socket, stage: forks.Stage) -> list[str]:
    """Fork for each request while no other program runs; returns the program's words in its process.

    Programs are forks of this very process, below which a profiler looks for them.
    """
    # Orphans of a program are ended with it.
    process_tree.adopt_orphans(True)
    own, before = os.getpid(), process_tree.list_descendants()
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if listener.fileno() not in ready:
            os._exit(0)
        connection, _ = listener.accept()
        try:
            (words, folder, environment, mask, _, around), files = forks.receive(connection)
        except (OSError, EOFError):
            # The other side has only looked whether this process is there.
            connection.close()
            continue
        if not stage.accepts(environment, around):
            _answer(connection, 0)
        elif child := _fork_quietly():
            _answer(connection, child)
            code = _follow_program(listener, connection, child)
            process_tree.end_processes(before, supervisor.STAGES["ended"])
            _answer(connection, code)
        else:
            process_tree.die_with(own)
            # The others are locks, whose numbers do not count.
            forks.take_files(dict(enumerate(files[:3])))
            listener.close()
            connection.close()
            os.chdir(folder)
            os.umask(mask)
            forks.become(stage, words, environment)
            return list(words)
        connection.close()
        for file in files:
            os.close(file)


def _fork_quietly() -> int:
    """Fork although the profiler has threads here, of which Python would warn; what may hang is ended by the client."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _follow_program(listener: socket.socket, connection: socket.socket, child: int) -> int:
    """Wait for a program and return its exit code; kill it if the other side or the run ends, and refuse others."""
    ended = os.pidfd_open(child)
    watched = [listener.fileno(), connection.fileno(), ended, 0]
    while ended not in (ready := select.select(watched, [], [])[0]):
        if listener.fileno() in ready:
            other, _ = listener.accept()
            _answer(other, 0)
            other.close()
        if connection.fileno() in ready or 0 in ready:
            os.kill(child, signal.SIGKILL)
            break
    os.close(ended)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _answer(connection: socket.socket, number: int) -> None:
    """Send a number, unless the other side has ended."""
    with suppress(OSError):
        connection.sendall(number.to_bytes(forks.NUMBER, "big", signed=True))


if __name__ == "__main__":
    to_run = main(*sys.argv[1:])
    forks.end_process(forks.exit_code(functools.partial(forks.run, to_run)))
