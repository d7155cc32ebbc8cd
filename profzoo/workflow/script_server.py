"""Runs scripts of rules in forks of a process that has imported their modules: `script_server.py DESCRIPTOR WORD...`.

A fork saves a second of imports for each figure and half a second for each table. Each program has a process of its
own, with its own environment, working directory and open files. Where the program was started, another process
represents it (`script_client.py`): the program ends with it and gets its signals.
"""

import ast
import atexit
import gc
import importlib
import marshal
import os
import runpy
import secrets
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Modules that any script imports, besides what stands at its beginning.
ALWAYS = ("snakemake.script", "snakemake.logging", "snakemake.iocontainers", "pandas.io.formats.csvs")
# Modules that others import only as they run.
LATER = {
    "matplotlib": (
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_pdf",
        "matplotlib.backends.backend_svg",
        "fontTools.subset",
        "PIL.JpegImagePlugin",
    ),
    "profzoo.verdicts.rules.rules": ("jsonschema",),
    "scipy": ("scipy.special",),
}
# Variables of scripts' processes that Snakemake sets by their threads.
THREADS = ("OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
           "NUMEXPR_NUM_THREADS")  # fmt: skip
# The package whose modules programs import anew after one of its files has changed.
PACKAGE = "profzoo"
# Variables of these that do not count: forks are given the first two. The others, with which jobs and torchrun start
# processes, are read as these join or compile something, and not as torch is imported.
READ_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_", "TORCH_NCCL_")
# Number of programs that may wait to be forked.
WAITING = 16
# Variables that are read once: as Python starts, and as libraries are imported.
READ_ONCE = ("PYTHON", "MPL", "LANG", "LC_", "TZ", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "TORCH", "PYTORCH_", "LD_",
             "MALLOC_")  # fmt: skip
# Bytes of a number. A request begins with its size. An answer is the number of the forked process, or 0 if the request
# was refused, and then the exit code.
NUMBER = 8
# First of the numbers that files have before each gets the number that it had in the program.
ASIDE = 400
# Servers that end with this process, because their standard input then closes.
_started: list[subprocess.Popen[bytes]] = []


def start(imported: Sequence[str], variables: dict[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start the process that forks and return it with its socket; it ends when its standard input is closed.

    It takes requests at once, and answers them when it has imported the modules.

    Args:
        imported: modules that it imports, or paths of scripts whose modules it imports.
        variables: its environment.
    """
    # A socket without a file, because a file would stay if this process were killed.
    path = f"profzoo-forks-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{path}")
        listener.listen(WAITING)
        # A terminal's signals reach a program only through the process that represents it.
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno()), *imported],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return process, path


def script_command(scripts: Sequence[str], variables: Mapping[str, str]) -> str:
    """Start a server for these scripts, and return the command that replaces Python in front of their paths.

    variables: the environment that Snakemake gives to scripts, before it adds those of threads.
    """
    process, path = start([*ALWAYS, *scripts], {**variables, **dict.fromkeys(THREADS, "1")})
    _started.append(process)
    return client_command(path)


def client_command(path: str) -> str:
    """Return the command that represents a program of a server where it is started; path: the server's socket."""
    return shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("script_client.py")), path])


def imports_of(script: str) -> list[str]:
    """List the modules that a script imports at its top level; names from packages may be modules too."""
    found = []
    for node in ast.parse(Path(script).read_bytes()).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def import_all(words: Sequence[str]) -> None:
    """Import modules, or those of scripts; what cannot be imported is left to the programs, which say why."""
    for word in words:
        for name in imports_of(word) if word.endswith(".py") else [word]:
            with suppress(Exception):
                importlib.import_module(name)


def read_states() -> dict[str, tuple[int, int, int]]:
    """Return number, size in bytes and time of change in ns of the files of the package's imported modules, by path."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name.partition(".")[0] == PACKAGE:
            with suppress(OSError):
                status = Path(file).stat()
                found[file] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def forget_if_changed(states: dict[str, tuple[int, int, int]]) -> None:
    """Forget the package's modules if a file is not in the state in which it was imported: its code has changed."""
    if read_states() != states:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def read_once(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that have an effect only at the start of a process."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_ONCE) and not name.startswith(READ_LATER)
    }


def serve(descriptor: int, own: dict[str, str], paths: Sequence[str]) -> list[str]:
    """Fork for each request; returns the program's words in the processes that are to run one.

    descriptor: number of the listening socket. own: variables with which this process started. paths: where it finds
    modules, without folders of its environment.
    """
    with socket.socket(fileno=descriptor) as listener:
        while True:
            ready, _, _ = select.select([descriptor, 0], [], [])
            if descriptor not in ready:
                # The process that sends requests has ended.
                sys.exit()
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                return attend(connection, own, paths)
            connection.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass


def is_own(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end; any user can connect to a socket without a file."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def attend(connection: socket.socket, own: dict[str, str], paths: Sequence[str]) -> list[str]:
    """Run the requested program in a new process, and answer with its exit code from this process.

    A program is refused if its environment differs from `own` in a variable that is read only at the start.
    """
    if not is_own(connection):
        os._exit(1)
    size, files, _, _ = socket.recv_fds(connection, NUMBER, ASIDE)
    with connection.makefile("rb") as stream:
        words, folder, environment, mask, numbers = marshal.loads(stream.read(int.from_bytes(size, "big")))
    if read_once(environment) != own:
        connection.sendall((0).to_bytes(NUMBER, "big"))
        os._exit(0)
    child = os.fork()
    if not child:
        connection.close()
        become(words, folder, environment, mask, dict(zip(numbers, files, strict=True)), paths)
        return list(words)
    ended = os.pidfd_open(child)
    connection.sendall(child.to_bytes(NUMBER, "big"))
    ready, _, _ = select.select([connection.fileno(), ended], [], [])
    if ended not in ready:
        # The process that represents the program was killed.
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if ended in ready:
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(NUMBER, "big", signed=True))
    os._exit(0)


def become(
    words: list[str],
    folder: str,
    environment: dict[str, str],
    mask: int,
    files: dict[int, int],
    paths: Sequence[str],
) -> None:
    """Turn this process into one that was started in this way; files: open files by their numbers in the program."""
    aside = {number: os.dup2(file, ASIDE + place) for place, (number, file) in enumerate(files.items())}
    for file in files.values():
        os.close(file)
    for number, file in aside.items():
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = words
    module = words[1] == "-m"
    sys.argv = words[2:] if module else words[1:]
    beside = folder if module else str(Path(folder, words[1]).parent)
    first = [] if environment.get("PYTHONSAFEPATH") else [beside]
    sys.path[:] = [*first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *paths]


def run(words: Sequence[str]) -> int:
    """Run the program, a module or a script, and return its exit code."""
    try:
        if words[1] == "-m":
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as ended:
        if not (ended.code is None or isinstance(ended.code, int)):
            raise
        return ended.code or 0
    return 0


if __name__ == "__main__":
    # Read first, because imported modules set variables.
    began_with = read_once(dict(os.environ))
    own_folders = set(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    import_all(sys.argv[2:])
    import_all([later for name in LATER if name in sys.modules for later in LATER[name]])
    imported_states = read_states()
    # Forks then share the memory of all objects.
    gc.freeze()
    words = serve(int(sys.argv[1]), began_with, [path for path in sys.path if path not in own_folders])
    forget_if_changed(imported_states)
    code = run(words)
    # A regular exit would clear shared objects and copy their memory first.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
