"""Runs programs that tell something, even where they are missing or hang, and reads versions of installed packages."""

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MISSING, TIMED_OUT = 127, 124
KILLED_S = 1.0
LONGEST_LIST_BYTES = 200_000


def ask_program(
    command: Sequence[str], seconds: float = 60, cwd: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command and return output and exit code; MISSING or TIMED_OUT with the reason as stderr.

    A program that takes longer than `seconds` is killed with all processes that it started. It is not waited for,
    because a driver may hold it forever.

    env: environment of the program; None for this process's environment.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=cwd, env=env, process_group=0,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, MISSING, "", f"{command[0]}: {error.strerror}")
    try:
        printed, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        said = f"{command[0]} did not answer within {seconds:g} s"
        return subprocess.CompletedProcess(command, TIMED_OUT, "", said)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, printed, said)


def ask_git(folder: Path, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a git command in the repository that contains the folder, as `ask_program` does.

    Variables such as GIT_DIR are removed: in a git hook they would name another repository.
    """
    own = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG)", name)}
    return ask_program(["git", "-C", str(folder), *words], seconds, env=own)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and its group if it is still running."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)


def read_version(program: str) -> str:
    """Last line printed by `program --version`."""
    return (ask_program([program, "--version"]).stdout.strip().splitlines() or [""])[-1]


def find_packages(folders: Iterable[str], modules: Iterable[str] | None = None) -> dict[str, str]:
    """Versions of the packages that are installed in folders, by normalised name; unreadable folders have none.

    folders: such as those of `sys.path`, of which the first counts that has a package. modules: names of modules, for
    only the packages that contain one of these; None for all packages.
    """
    wanted = None if modules is None else {name.partition(".")[0] for name in modules}
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*.dist-info")) if folder else ():
            name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
            name = re.sub(r"[-_.]+", "-", name).lower()
            if name not in found and (wanted is None or wanted & _modules_of(path, name)):
                found[name] = version
    return dict(sorted(found.items()))


def _modules_of(path: Path, name: str) -> set[str]:
    """Names of a package's top-level modules; path: folder of its metadata; name: normalised name of the package."""
    with suppress(OSError):
        return {*(path / "top_level.txt").read_text(errors="replace").split()}
    with suppress(OSError):
        # A package of many files has the name of its module in all known cases, and its list takes long to read.
        if (path / "RECORD").stat().st_size < LONGEST_LIST_BYTES:
            lines = (path / "RECORD").read_text(errors="replace").splitlines()
            return {re.split(r"[/,]", line)[0].removesuffix(".py") for line in lines}
    return {name.replace("-", "_")}
