"""Runs ncu on one program: several times, as one run accepts only one selection of launches, or attached to forks.

python -m profzoo.tools.ncu.multi_run FOLDER OPTION ... --then OPTION ... --in-all ncu OPTION ... REPORT -- PROGRAM ...
python -m profzoo.tools.ncu.multi_run --attach SOCKET PROCESS PORT NOTE ncu OPTION ... REPORT PROGRAM ...

Options before `--in-all` are of a run each, and a list of metrics among them replaces that of all runs. The first
run leaves REPORT, the others FOLDER/2.ncu-rep and so on. The first that fails ends it, with its exit code.

After `--attach` stands any command of ncu. The programs of its runs are then forks of a server below another ncu
(`profzoo.machine.profiled_forks`), which saves the seconds in which each would import torch. NOTE gets the number of
such runs. Where that fails before the program has used the GPU, the run's own command is run, and the log says why.
"""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from profzoo.errors import CollectError
from profzoo.machine import fork_client, gpu_slots, process_tree, surroundings
from profzoo.tools.ncu.command import (
    ATTACH,
    EXPORT,
    IN_ALL,
    PROGRAM,
    SEVERAL,
    keep_first_metrics,
    run_options,
    split_launch,
)

# Seconds that a server gets to import its modules; of a program that has used no CPU or has not reached CUDA, before
# ncu could attach; of one that has used no CPU since; and of a program whose ncu has failed.
READY_S, IDLE_S, UNATTACHED_S, SILENT_S, LEFT_S = 60.0, 20.0, 60.0, 60.0, 10.0
# Seconds between two looks, and CPU seconds that are no idling of threads.
PAUSE_S, BUSY_S = 0.1, 0.5
# What ncu prints when no program waits, of a launch that it profiles, and once it has attached.
NONE_WAITS, PROFILING = "No attachable process found", b"==PROF== Profiling "
ATTACHED = re.compile(rb"^==PROF== (?!Finding|Note)", re.MULTILINE)


def split_commands(arguments: Sequence[str]) -> list[list[str]]:
    """Return the command of each run.

    >>> words = "more -c 1 --then -c 2 --in-all ncu --set full --export x -- run"
    >>> for command in split_commands(words.split()):
    ...     print(*command)
    ncu -c 1 --set full --export x run
    ncu -c 2 --set full --export more/2.ncu-rep run
    """
    if arguments[0] == PROGRAM:
        return [list(arguments)]
    at, end = arguments.index(IN_ALL), arguments.index("--")
    program, *shared, report = arguments[at + 1 : end]
    found = []
    for number, own in enumerate(run_options(arguments[1 : at + 1]), 1):
        target = report if number == 1 else str(Path(arguments[0]) / f"{number}.ncu-rep")
        found.append([*keep_first_metrics([program, *own, *shared, target]), *arguments[end + 1 :]])
    return found


class NotForkedError(Exception):
    """A run that cannot be of a fork, and why; its own command can be run."""


class Server:
    """The server below ncu, as a job is told of it."""

    def __init__(self, path: str, process: str, port: str) -> None:
        """path: its socket. process: the launching ncu. port: the first on which programs wait."""
        self._path, self._process, self._port = path, int(process), port

    def fork(self, words: Sequence[str]) -> fork_client.Profiled:
        """Fork a program.

        Raises:
            NotForkedError: the server is not there, or refuses.
        """
        until = time.monotonic() + READY_S
        while not fork_client.is_there(self._path):
            if not process_tree.is_alive(self._process):
                raise NotForkedError("the ncu that was to start it has ended")
            if time.monotonic() > until:
                raise NotForkedError(f"the process that was to fork it was not ready within {READY_S:.0f} s")
            time.sleep(PAUSE_S)
        # Here and not in the program, as it would not come to wait for ncu before its turn.
        gpu_slots.wait_for_turn()
        around = surroundings.describe(shutil.which(words[0]) or "")
        program = fork_client.Profiled(self._path, [*words], dict(os.environ), around, inherited_files())
        if not program.process:
            program.close()
            raise NotForkedError("the process that was to fork it is busy, or has begun otherwise than this job")
        return program

    def attach(self, options: Sequence[str], program: fork_client.Profiled) -> tuple[int, bool]:
        """Attach ncu as soon as the program waits for it; returns ncu's exit code, and whether it profiled a launch.

        Raises:
            NotForkedError: ncu cannot attach, or the program does nothing.
        """
        own = ["--mode=attach", "--hostname", "127.0.0.1", "--port", self._port]
        until, idle = time.monotonic() + UNATTACHED_S, Idle(program.process)
        while True:
            with subprocess.Popen([PROGRAM, *own, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as tool:
                try:
                    said, profiled = pass_on(tool, program, idle)
                    code = tool.wait()
                finally:
                    tool.kill()
            if said is None:
                return code, profiled
            printed = said.decode(errors="replace")
            if select.select([program], [], [], PAUSE_S)[0]:
                # It has ended without CUDA, of which ncu complains.
                print(printed, end="", flush=True)
                return 0, False
            if NONE_WAITS not in printed:
                errors = [line for line in printed.splitlines() if line.startswith("==ERROR== ")]
                raise NotForkedError(f"ncu could not attach: {(errors or ['it said nothing'])[0]}")
            if idle.seconds() > IDLE_S or time.monotonic() > until:
                raise NotForkedError("it did not wait for ncu to attach")


class Idle:
    """How long a process has used next to no CPU."""

    def __init__(self, process: int) -> None:
        """process: its number."""
        self._process, self._since, self._used = process, time.monotonic(), 0.0

    def seconds(self) -> float:
        """Return the seconds since it last used some."""
        # Ticks in user and in kernel mode.
        ticks = sum(map(int, process_tree.read_stat(self._process)[11:13])) / os.sysconf("SC_CLK_TCK")
        if ticks > self._used + BUSY_S:
            self._since, self._used = time.monotonic(), ticks
        return time.monotonic() - self._since


def inherited_files() -> list[int]:
    """Descriptors that programs inherit besides the first three: the locks of GPUs."""
    return [number for number in surroundings.open_files() if number > 2 and os.get_inheritable(number)]


def run_attached(command: Sequence[str], server: Server) -> int:
    """Run one command of ncu with a fork as its program; returns the exit code.

    Raises:
        NotForkedError: it cannot be run so, and the program has not used the GPU.
        CollectError: the job has ended, or could not get the GPU.
    """
    end = list(command).index(EXPORT) + 2
    with closing(server.fork(command[end:])) as program:
        code, profiled = server.attach(split_launch(command[1:end])[1], program)
        # A program whose ncu has failed may wait for ever.
        ended = program.wait(LEFT_S if code else None)
        if ended is None and not profiled:
            raise NotForkedError(f"the ncu that attached to it ended with exit code {code}")
        return shell_code(ended or 0) or shell_code(code)


def pass_on(tool: "subprocess.Popen[bytes]", program: fork_client.Profiled, idle: Idle) -> tuple[bytes | None, bool]:
    """Pass on what ncu prints once it has attached, until it ends.

    Returns what it printed if it has not attached, else None; and whether it profiled a launch.

    Raises:
        NotForkedError: the program does nothing.
    """
    assert tool.stdout
    kept, attached, profiled = b"", False, False
    while True:
        if select.select([tool.stdout], [], [], 1.0)[0]:
            if not (part := os.read(tool.stdout.fileno(), 1 << 16)):
                return None if attached else kept, profiled
            kept += part
            attached = attached or bool(ATTACHED.search(kept[: kept.rfind(b"\n") + 1]))
            if attached:
                profiled = profiled or PROFILING in kept
                os.write(1, kept)
                kept = b""
        elif not profiled and idle.seconds() > SILENT_S and not select.select([program], [], [], 0)[0]:
            raise NotForkedError(f"it did nothing for {SILENT_S:.0f} s")


def run_alone(command: Sequence[str]) -> int:
    """Run one command of ncu, which starts the program; returns the exit code."""
    return shell_code(subprocess.run(command, check=False, pass_fds=inherited_files()).returncode)


def shell_code(code: int) -> int:
    """Exit code of a process that passes on another's, as ncu does.

    >>> shell_code(3), shell_code(-9)
    (3, 137)
    """
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    server, note, forked = None, None, 0
    if arguments[0] == ATTACH:
        server, note = Server(*arguments[1:4]), Path(arguments[4])
        arguments = arguments[5:]
        arguments = arguments[len(SEVERAL) :] if list(arguments[: len(SEVERAL)]) == SEVERAL else arguments
    if arguments[0] != PROGRAM:
        Path(arguments[0]).mkdir(exist_ok=True)
    for command in split_commands(arguments):
        try:
            if server:
                code = run_attached(command, server)
                forked += 1
            else:
                code = run_alone(command)
        except NotForkedError as why:
            print(f"ncu starts the program itself, not from a fork: {why}", flush=True)
            code = run_alone(command)
        except CollectError as error:
            print(f"profzoo: {error}", file=sys.stderr)
            return 2
        if code:
            return code
    if note:
        note.write_text(str(forked))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
