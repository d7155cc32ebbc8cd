"""Runs snakemake in forks of a process that has imported it, which saves two seconds per run.

Each run is a separate process with its own environment and working directory, and imports the project's code itself.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

INTERNALS = Path(__file__).parents[2] / "profzoo" / "workflow" / "snakemake_internals.py"
# Modules that the rules' scripts import, besides the project's code, which each copy of it imports anew.
SCRIPTS = ("pandas", "matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg",
           "PIL.JpegImagePlugin", "jinja2", "jsonschema", "yaml", "pynvml", "email.message", "importlib.metadata",
           "sqlite3", "statistics", "xml.etree.ElementTree")  # fmt: skip
# Modules that cells import.
CELLS = (
    "torch", "torch._dynamo", "torch.profiler", "torch.utils.data", "torch.utils.flop_counter",
    "torch.utils.serialization", "torchvision.models", "nvtx", "yaml", "jsonschema",
)  # fmt: skip
# Variables that scripts have when they start: Snakemake sets those of threads, and the workflow sets the other one. If
# one is missing here, every script is refused, and starts a Python of its own.
OF_SCRIPTS = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **{"OMP_WAIT_POLICY": "PASSIVE", "PYTHONSAFEPATH": "1"},
}


def snakemake(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `python -m snakemake` with these words in a folder and environment, and return the finished process."""
    with tempfile.TemporaryDirectory() as written:
        out, err = (str(Path(written) / name) for name in ("out", "err"))
        request = {
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
            "out": out,
            "err": err,
            "scripts": _scripts(),
        }
        server = _server()
        assert server.stdin and server.stdout
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(["snakemake", *words], code, Path(out).read_text(), Path(err).read_text())


@cache
def _server() -> subprocess.Popen[str]:
    """Return the process that forks; it ends with this process."""
    # Python decides at its start whether it writes bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=tempfile.gettempdir(), env=environment,
    )  # fmt: skip
    atexit.register(_end, process)
    return process


@cache
def _scripts() -> str:
    """Return the command that replaces Python in commands that run scripts."""
    # Imported here, because the process that forks imports this module.
    from profzoo.machine import forks

    left = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process, path = forks.start(forks.SCRIPTS, [[*forks.ALWAYS, *SCRIPTS]], left | OF_SCRIPTS)
    atexit.register(_end, process)
    return forks.client_command(path)


def cells(variables: Mapping[str, str]) -> str:
    """Return the socket of the process that forks cells whose environment has these variables."""
    # Imported here, because the process that forks imports this module.
    from profzoo.machine import forks

    return _cells(tuple(sorted(forks.read_once(variables).items())))


@cache
def _cells(variables: tuple[tuple[str, str], ...]) -> str:
    from profzoo.machine import forks

    left = {name: value for name, value in os.environ.items() if not forks.read_once({name: value})}
    process, path = forks.start(forks.SCRIPTS, [CELLS], {**left, **dict(variables), "CUDA_VISIBLE_DEVICES": ""})
    atexit.register(_end, process)
    return forks.stage_path(path, 0)


def _end(process: subprocess.Popen[Any]) -> None:
    process.communicate()


def become(request: Mapping[str, object]) -> None:
    """Turn this process into the one that a request describes."""
    for number, name in ((1, request["out"]), (2, request["err"])):
        file = os.open(str(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(str(request["folder"]))
    own = _start_variables()
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    tempfile.tempdir = None
    sys.argv = ["snakemake", *request["words"]]  # type: ignore[misc]
    # `python -m` puts this folder first; here it replaces the folder of this file.
    sys.path[:1] = [str(request["folder"])]
    # These variables are read only when a process starts. If they differ, scripts must not run in forks.
    if _start_variables() == own:
        RUN_SCRIPTS_BY(str(request["scripts"]))


def _start_variables() -> dict[str, str]:
    """Return the variables that Python and libraries read only once, when they start or are imported."""
    names = ("PYTHON", "MPL", "LANG", "LC_", "TZ")
    return {name: value for name, value in os.environ.items() if name.startswith(names) and name != "PYTHONPATH"}


def serve() -> None:
    """Answer requests with exit codes; returns only in the forked processes that run a request."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


if __name__ == "__main__":
    # Modules that every run imports, for Snakemake and for the project's planning.
    for name in ("difflib", "jsonschema", "nbformat", "packaging.version", "runpy", "smart_open", "yaml"):
        importlib.import_module(name)
    import snakemake.cli

    # This call also imports the plugins.
    snakemake.cli.get_argument_parser()
    # Without garbage collection, forks share this memory. Collection would take a tenth of the second that they live.
    gc.freeze()
    gc.disable()
    # By its path: each run imports the package of its own copy.
    RUN_SCRIPTS_BY = runpy.run_path(str(INTERNALS))["run_scripts_by"]
    serve()
    try:
        snakemake.cli.main()
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        # A normal exit would clear memory that is shared with the server, and so copy all of it first.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)
