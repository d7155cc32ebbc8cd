"""Runs Python programs in forks of a process that has imported their modules: `fork_server.py SOCKET MODULE...`.

A fork saves half a second for each of the rules' scripts, and two seconds for each cell. Each program has a process of
its own, with its own environment, working directory and open files, and imports the project's code anew. Where the
program was started, another process represents it (`fork_client.py`): the program ends with it and gets its signals.
"""

import atexit
import gc
import importlib
import marshal
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Modules that the rules' scripts import, besides the project's code.
SCRIPTS = ("snakemake.script", "pandas", "matplotlib.pyplot", "matplotlib.backends.backend_agg",
           "matplotlib.backends.backend_svg", "PIL.JpegImagePlugin", "jinja2", "jsonschema", "yaml", "pynvml",
           "pandas.io.formats.csvs", "email.message", "importlib.metadata", "sqlite3", "statistics",
           "xml.etree.ElementTree")  # fmt: skip
# Modules that cells import.
CELLS = (
    "torch",
    "torch._dynamo",
    "torch.profiler",
    "torch.utils.data",
    "torch.utils.flop_counter",
    "torch.utils.serialization",
    "torchvision.models",
    "nvtx",
    "yaml",
    "jsonschema",
)
# Variables of these that do not count: forks are given the first two. The others, with which jobs and torchrun start
# processes, are read as these join or compile something, and not as torch is imported.
READ_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_", "TORCH_NCCL_")
# Number of programs that may wait to be forked.
WAITING = 16
# Variables that are read once: as Python starts, and as libraries are imported.
READ_ONCE = ("PYTHON", "MPL", "LANG", "LC_", "TZ", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "TORCH", "PYTORCH_", "LD_", "MALLOC_")  # fmt: skip
# Bytes of a number. A request begins with its size. An answer is the number of the forked process, or 0 if the request
# was refused, and then the exit code.
NUMBER = 8
# First of the numbers that files have before each gets the number that it had in the program.
ASIDE = 400


def start(imported: Sequence[str], variables: dict[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start the process that forks and return it with its socket; it ends with this process.

    Args:
        imported: modules that it imports.
        variables: its environment.
    """
    # A socket without a file, because a file would stay if this process were killed.
    path = f"profzoo-forks-{secrets.token_hex(8)}"
    process = subprocess.Popen(
        [sys.executable, __file__, path, *imported], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    )
    assert process.stdout and process.stdout.readline()
    return process, path


def read_once(variables: dict[str, str]) -> dict[str, str]:
    """Select the variables that have an effect only at the start of a process."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_ONCE) and not name.startswith(READ_LATER)
    }


def serve(path: str, own: dict[str, str]) -> list[str]:
    """Fork for each request; returns the program's words in the processes that are to run one.

    own: variables with which this process started.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{path}")
        listener.listen(WAITING)
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if listener not in ready:
                # The process that sends requests has ended.
                sys.exit()
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                return attend(connection, own)
            connection.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass


def attend(connection: socket.socket, own: dict[str, str]) -> list[str]:
    """Run the requested program in a new process, and answer with its exit code from this process.

    A program is refused if its environment differs from `own` in a variable that is read only at the start.
    """
    size, files, _, _ = socket.recv_fds(connection, NUMBER, ASIDE)
    with connection.makefile("rb") as stream:
        words, folder, environment, mask, numbers = marshal.loads(stream.read(int.from_bytes(size, "big")))
    if read_once(environment) != own:
        connection.sendall((0).to_bytes(NUMBER, "big"))
        os._exit(0)
    child = os.fork()
    if not child:
        connection.close()
        become(words, folder, environment, mask, dict(zip(numbers, files, strict=True)))
        return list(words)
    ended = os.pidfd_open(child)
    connection.sendall(child.to_bytes(NUMBER, "big"))
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:
        # The process that represents the program was killed.
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if ended in ready:
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(NUMBER, "big", signed=True))
    os._exit(0)


def become(words: list[str], folder: str, environment: dict[str, str], mask: int, files: dict[int, int]) -> None:
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
    sys.path[:1] = [*first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]


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
    for name in sys.argv[2:]:
        importlib.import_module(name)
    # Forks then share the memory of all objects.
    gc.freeze()
    code = run(serve(sys.argv[1], began_with))
    # A regular exit would clear shared objects and copy their memory first.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
