"""Starts programs that may be asked to record themselves, and asks a running one."""

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from profzoo.cli import recorded_advice
from profzoo.errors import CollectError, ConfigError
from profzoo.script_harness import launcher, recorded_files
from profzoo.script_harness.recorded_files import ANSWER, ARMED, ASKING, DONE, RECORDING, REQUEST
from profzoo.script_harness.task import Task

ARM, ATTACH = "arm", "attach"
EXAMPLE = "python -m profzoo session arm -- python serve.py"
# Seconds between two looks, until a process answers, and for it to end a recording.
LOOK_S, ANSWERS_S, ENDS_S = 0.1, 20.0, 60.0


def main_arm(words: Sequence[str]) -> int:
    """Run `profzoo session arm`; the program replaces this process, or the variables that arm it are printed."""
    parser = argparse.ArgumentParser(
        prog="python -m profzoo session arm", description="Start a program that may be asked to record itself.",
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command; its variables without one")
    command = parser.parse_args(words).command
    command = command[1:] if command[:1] == ["--"] else command
    paths = [str(launcher.STARTUP), *filter(None, os.environ.get(launcher.PATHS, "").split(os.pathsep))]
    folder = str(recorded_files.FOLDER.absolute())
    variables = {ARMED: folder, launcher.PATHS: os.pathsep.join(paths)}
    if not command:
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))
        return 0
    if not (program := shutil.which(command[0])):
        print(f"profzoo: {command[0]} is not on PATH, nor a file that can be run", file=sys.stderr)
        return 2
    os.execve(program, command, {**os.environ, **variables})


def main_attach(words: Sequence[str]) -> int:
    """Run `profzoo session attach`; returns the exit code."""
    options = _parser().parse_args(words)
    name = options.name or f"process_{options.pid}"
    try:
        plan = launcher.plan_recording(name, options.steps, options.warmup, options.step)
        folder = find_folder(options.pid)
        lacks = record_process(options.pid, folder, plan, options.seconds)
        print(recorded_advice.advise(folder, name, lacks))
    except (CollectError, ConfigError) as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    return 0


def find_folder(pid: int) -> Path:
    """Return the folder for recordings of an armed process.

    Raises:
        ConfigError: there is no such process, or the signal would end it.
    """
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise ConfigError(f"there is no process {pid}") from None
    except PermissionError:
        raise ConfigError(f"process {pid} is of another user, who may record it") from None
    start = f"{ARMED}=".encode()
    found = next((one.removeprefix(start) for one in variables if one.startswith(start)), b"")
    if not found:
        raise ConfigError(f"process {pid} was not armed, so that no signal can ask it: start it by `{EXAMPLE}`")
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
    if not caught >> (ASKING - 1) & 1:
        raise ConfigError(
            f"process {pid} is armed, and does not wait for the signal: it is no Python, or was started by `python "
            "-I`; the processes that it has started may be"
        )
    return Path(os.fsdecode(found))


def record_process(pid: int, folder: Path, plan: Task, seconds: float) -> str:
    """Ask a process to record, and wait until it has; returns why there is no trace, empty if there is one.

    seconds: after which it is to end with the steps that it has.

    Raises:
        CollectError: it records nothing.
    """
    request, answer = (folder / name.format(pid) for name in (REQUEST, ANSWER))
    folder.mkdir(parents=True, exist_ok=True)
    answer.unlink(missing_ok=True)
    plan.write(request)
    try:
        return _ask(pid, answer, seconds)
    finally:
        for path in (request, answer):
            path.unlink(missing_ok=True)


def _ask(pid: int, answer: Path, seconds: float) -> str:
    try:
        os.kill(pid, ASKING)
        _wait(pid, ANSWERS_S, answer.exists)
        if not answer.exists():
            raise CollectError(f"process {pid} has not answered for {ANSWERS_S:g} s: its main thread is not in Python")
        print(f"recording process {pid}, for {seconds:g} s at the most", file=sys.stderr, flush=True)
        _wait(pid, seconds, lambda: _state(answer)[0] != RECORDING)
        if _state(answer)[0] == RECORDING and _runs(pid):
            os.kill(pid, ASKING)
            _wait(pid, ENDS_S, lambda: _state(answer)[0] != RECORDING)
    except ProcessLookupError:
        raise CollectError(f"process {pid} has ended") from None
    state, why = _state(answer)
    if state != DONE:
        raise CollectError(f"process {pid} has recorded nothing: {why or 'it has ended, or still runs its step'}")
    return why


def _wait(pid: int, seconds: float, over: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not over() and _runs(pid) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _state(answer: Path) -> tuple[str, str]:
    said = json.loads(answer.read_text())
    return said["state"], said["why"]


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m profzoo session attach", description=__doc__, allow_abbrev=False)
    parser.add_argument("pid", type=int, metavar="PID", help=f"number of a process that was started by `{EXAMPLE}`")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed, and as many that are traced; 10")
    parser.add_argument("--warmup", type=int, default=3, help="steps before; 3")
    parser.add_argument("--step", default="auto", help="auto, optimizer, module:NAME, range:NAME or dataloader")
    parser.add_argument("--seconds", type=float, default=60.0, help="end with the steps that there are by then; 60")
    parser.add_argument("--name", help="name of the recording; process_PID unless given")
    return parser
