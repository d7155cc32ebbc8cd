"""Runs rules' scripts in processes forked from one that has imported what they take: half of a second less for each.

Each script is a process of its own, with its own environment, working directory and open files, that imports the
project's code anew, and ends with the process that stands for it where Snakemake started it.
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
from contextlib import suppress
from pathlib import Path

CLIENT = Path(__file__).with_name("forked_client.py")
# Modules that scripts import, besides the project's code.
IMPORTED = ("snakemake.script", "pandas", "matplotlib.pyplot", "matplotlib.backends.backend_agg",
            "matplotlib.backends.backend_svg", "jinja2", "jsonschema", "yaml")  # fmt: skip


def command(path: str) -> str:
    """Return the words that replace Python in a command that runs a script; path: socket of the process."""
    return f"{sys.executable} -I -S {CLIENT} {path}"


def start() -> tuple[subprocess.Popen[bytes], str]:
    """Start the process that forks, which ends with this one; return it and its socket."""
    # An abstract socket, because a file would remain if this process is killed.
    path = f"profzoo-scripts-{secrets.token_hex(8)}"
    left = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=left | own
    )
    assert process.stdout and process.stdout.readline()
    return process, path


def serve(path: str) -> None:
    """Run a script for each request; returns only in the forked processes that run one."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{path}")
        listener.listen(16)
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if listener not in ready:
                # No process can send a request any more.
                sys.exit()
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                return attend(connection)
            connection.close()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass


def attend(connection: socket.socket) -> None:
    """Fork a process for a request, and answer with its exit code."""
    size, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        words, folder, environment, mask = marshal.loads(stream.read(int.from_bytes(size, "big")))
    child = os.fork()
    if not child:
        connection.close()
        return become(words, folder, environment, mask, files)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:
        # The process that sent the request was killed.
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if ended in ready:
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
    os._exit(0)


def become(words: list[str], folder: str, environment: dict[str, str], mask: int, files: list[int]) -> None:
    """Turn this process into the one that a request describes."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.argv, sys.orig_argv = words[1:], words
    beside = [] if environment.get("PYTHONSAFEPATH") else [str(Path(folder, words[1]).parent)]
    sys.path[:1] = [*beside, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    # Without garbage collection, forks share this memory.
    gc.freeze()
    serve(sys.argv[1])
    script = sys.argv[0]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if not (ended.code is None or isinstance(ended.code, int)):
            raise
        code = ended.code or 0
    else:
        code = 0
    # A normal exit would clear shared memory, and so copy all of it first.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
