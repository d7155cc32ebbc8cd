"""Runs programs in forks of a process that has imported their modules: `forks.py KIND DESCRIPTORS WORD...`.

A fork saves two seconds of imports for a job that measures a model, a second for a figure and half a second for a
table. Each program has a process of its own, with its own environment, working directory and open files. Where the
program was started, another process represents it (`fork_client.py`): the program ends with it and gets its signals.
A job's supervisor is a fork too, and forks the job's program, so that it supervises it as any other
(`profzoo.machine.supervisor`). Programs whose environment or surroundings differ are refused, and start by themselves.

What a fork takes over, and when forking is safe, holds for `profzoo.experiments.fork_server` as well.
"""

import ast
import atexit
import gc
import importlib
import itertools
import marshal
import os
import pkgutil
import runpy
import secrets
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

# Modules that any script imports, besides what stands at its beginning.
ALWAYS = ("snakemake.script", "snakemake.logging", "snakemake.iocontainers", "pandas.io.formats.csvs")
# Modules that others import only as they run.
LATER = {
    "matplotlib": (
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_pdf",
        "matplotlib.backends.backend_svg",
        "fontTools.subset",
        *(
            f"fontTools.ttLib.tables.{name}"
            for name in ("O_S_2f_2", "_c_v_t", "_f_p_g_m", "_g_a_s_p", "_h_h_e_a", "_l_o_c_a", "_p_r_e_p")
        ),
        *(f"PIL.{form}ImagePlugin" for form in ("Bmp", "Gif", "Jpeg", "Png", "Ppm")),
    ),
    "profzoo.figures.drawing": ("profzoo.figures.*",),
    "profzoo.verdicts.rules.rules": ("jsonschema",),
    "profzoo.statistics": ("scipy.special",),
}
# Modules of cells, in stages: of all, of those that train, and of those whose model is made of torchvision's. Each
# stage is a fork of the one before, so that no job holds modules that it would not import by itself.
STAGES = (("profzoo.run", "profzoo.harness.step.measure"), ("torch._dynamo",), ("torchvision.models",))
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
# Variables that each job has of its own. Its program reads them as it runs; in all others it is to be as the server.
OF_EACH_JOB = ("TMPDIR", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "PROFZOO_JOB",
               "PROFZOO_UMASK", "PROFZOO_TURN", "PROFZOO_OBSERVED_FILES", "PROFZOO_SECRETS_FILE")  # fmt: skip
# Kinds of servers: of scripts, of jobs that measure, and of programs below a profiler (`profiled_forks.py`).
SCRIPTS, JOBS, PROFILED = "scripts", "jobs", "profiled"
# The word between the modules of one stage and those of the next.
THEN = "--then"
# The variable that names the socket of a run's server of jobs, and what stands in place of a path of a supervisor.
FORKS, SUPERVISOR = "PROFZOO_FORKS", "supervisor"
# Bytes of a number. A request begins with its size. An answer is the number of the forked process, or 0 if the request
# was refused, and then the exit code.
NUMBER = 8
# First of the numbers that files have before each gets the number that it had in the program.
ASIDE = 400
# Makes torch count GPUs by NVML; its other way initialises CUDA, after which forks cannot use it. Keeps torch from
# starting processes and threads that compile when its compiler is imported.
WHILE_IMPORTING = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCH_WARM_POOL": "0"}
# Servers that end with this process, because their standard input then closes.
_started: list[subprocess.Popen[bytes]] = []


class BecomeProgram(BaseException):
    """Leaves all that a forked process was doing, for what it becomes; words: the program's."""

    def __init__(self, words: list[str]) -> None:
        """Keep the words."""
        super().__init__()
        self.words = words


# Starting a server.


def start(
    kind: str, stages: Sequence[Sequence[str]], variables: Mapping[str, str], python: str = sys.executable
) -> tuple[subprocess.Popen[bytes], str]:
    """Start the process that forks and return it with its socket; it ends when its standard input is closed.

    It takes requests at once, and answers them when it has imported the modules.

    Args:
        kind: `scripts` or `jobs`.
        stages: modules that it imports, or paths of scripts whose modules it imports. A fork of it also imports those
            of the next stage, and so on; each has a socket of its own, whose name ends in its number.
        variables: its environment.
        python: its interpreter.
    """
    # A socket without a file, because a file would stay if this process were killed.
    path = f"profzoo-forks-{secrets.token_hex(8)}"
    words = [word for stage in stages for word in (THEN, *stage)][1:]
    listeners = [socket.socket(socket.AF_UNIX) for _ in stages]
    try:
        for number, listener in enumerate(listeners):
            listener.bind(f"\0{stage_path(path, number)}")
            listener.listen(WAITING)
        numbers = [listener.fileno() for listener in listeners]
        # A terminal's signals reach a program only through the process that represents it.
        process = subprocess.Popen(
            [python, "-P", __file__, kind, ",".join(map(str, numbers)), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            pass_fds=numbers,
            start_new_session=True,
        )
    finally:
        for listener in listeners:
            listener.close()
    return process, path


def stage_path(path: str, number: int) -> str:
    """Return the socket of a stage; path: of the server; number: of the stage, from 0."""
    return f"{path}-{number}"


def script_command(scripts: Sequence[str], variables: Mapping[str, str]) -> str:
    """Start a server for these scripts, and return the command that replaces Python in front of their paths.

    variables: the environment that Snakemake gives to scripts, before it adds those of threads.
    """
    process, path = start(SCRIPTS, [[*ALWAYS, *scripts]], {**variables, **dict.fromkeys(THREADS, "1")})
    _started.append(process)
    return client_command(path)


def client_command(path: str) -> str:
    """Return the command that represents a script of a server where it is started; path: the server's socket."""
    client = str(Path(__file__).with_name("fork_client.py"))
    return shlex.join([sys.executable, "-I", "-S", client, stage_path(path, 0)])


def serve_jobs(variables: Mapping[str, str]) -> None:
    """Start the server of this run's jobs, and export its socket to them; variables: a job's environment."""
    if python := shutil.which("python", path=variables.get("PATH")):
        process, os.environ[FORKS] = start(JOBS, STAGES, variables, python)
        _started.append(process)


# What a process has that its programs would inherit, and whether they may.


def read_once(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that have an effect only at the start of a process."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_ONCE) and not name.startswith(READ_LATER)
    }


def common_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that all jobs of a run have alike."""
    return {name: value for name, value in variables.items() if name not in OF_EACH_JOB}


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


# Importing.


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
    """Import modules, of packages and scripts too; what cannot be imported is left to the programs, which say why."""
    for word in words:
        for name in imports_of(word) if word.endswith(".py") else list_modules(word):
            with suppress(Exception):
                importlib.import_module(name)


def list_modules(word: str) -> list[str]:
    """List the modules that a word names: one, or with `.*` at its end all of a package.

    >>> list_modules("json"), list_modules("profzoo.figures.*")[0]
    (['json'], 'profzoo.figures.classes')
    """
    if not word.endswith(".*"):
        return [word]
    package = word.removesuffix(".*")
    return [f"{package}.{one.name}" for one in pkgutil.iter_modules(importlib.import_module(package).__path__)]


@contextmanager
def importing() -> Iterator[None]:
    """Keep torch from what a fork could not use while the body imports; all that exists then is shared by forks."""
    before = {name: os.environ.get(name) for name in WHILE_IMPORTING}
    os.environ.update(WHILE_IMPORTING)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})
    # Collecting garbage in a fork would copy the memory that it shares with this process.
    gc.collect()
    gc.freeze()


@contextmanager
def _noting_output() -> Iterator[list[str]]:
    """Yield a list, which gets what the body prints: a job has that in its log."""
    printed = list[str]()
    with open(os.memfd_create("printed"), "r+b") as file, open(os.devnull, "wb") as nothing:  # noqa: PTH123
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        yield printed
        sys.stdout.flush()
        sys.stderr.flush()
        for number in (1, 2):
            os.dup2(nothing.fileno(), number)
        file.seek(0)
        printed += file.read().decode(errors="replace").splitlines()


# What a fork takes over.


def take_files(files: Mapping[int, int], close: bool = True) -> None:
    """Give open files the numbers that they have in a program; files: by these; close: the numbers that they had."""
    aside = {number: os.dup2(file, ASIDE + place) for place, (number, file) in enumerate(files.items())}
    for file in set(files.values()) if close else ():
        os.close(file)
    for number, file in aside.items():
        os.dup2(file, number)
        os.close(file)


def take_environment(environment: Mapping[str, str]) -> None:
    """Replace the environment by a program's."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))


def take_words(words: list[str]) -> None:
    """Replace the command line by a program's: Python, and a script or -m and a module, with their arguments."""
    sys.orig_argv = words
    sys.argv = words[2:] if words[1] == "-m" else words[1:]


def reset_signals() -> None:
    """Handle signals as a process does that Python has just started: what is ignored stays ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def draw_anew() -> None:
    """Seed the random numbers of numpy; Python's random does so by itself, and the cell's seed sets torch's."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def run(words: Sequence[str]) -> None:
    """Run the program of a command line, a module or a script."""
    if words[1] == "-m":
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[1], run_name="__main__")


def exit_code(program: Callable[[], int | None]) -> int:
    """Run a program; returns the exit code that Python would end with, after it has printed what Python would."""
    try:
        return program() or 0
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return end.code or 0
        print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        trace = error.__traceback__
        # Python's own would begin with the program.
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error, trace)
    return 1


def end_process(code: int) -> NoReturn:
    """End this process as Python does, but without freeing its memory: all that is shared would be copied first."""
    # Waits for threads that Python itself would wait for.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


# Serving.


@dataclass(frozen=True)
class Stage:
    """What a process that forks has imported, and what it began with.

    kind: of the server. variables: the variables that count. around: its surroundings. paths: where it finds modules,
    without folders of its environment. states: of its modules' files. set: variables that imports have set. files:
    numbers of files that imports have opened. ranges: of the files that it has mapped.
    """

    kind: str
    variables: Mapping[str, str]
    around: Sequence[Any]
    paths: Sequence[str]
    states: Mapping[str, tuple[int, int, int]]
    set: Mapping[str, str]
    files: frozenset[int]
    ranges: Sequence[tuple[int, int]]

    def accepts(self, environment: Mapping[str, str], around: Sequence[Any]) -> bool:
        """Whether a program with this environment and these surroundings may be a fork of this process."""
        if self.kind == SCRIPTS:
            return read_once(environment) == self.variables
        same = common_variables(environment) == self.variables and around == self.around
        return same and read_states() == self.states


def serve(listener: socket.socket, stage: Stage) -> list[str]:
    """Fork for each request; returns the program's words in the processes that are to run one."""
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if listener.fileno() not in ready:
            # The process that sends requests has ended.
            os._exit(0)
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            return attend(connection, stage)
        connection.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def is_own(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end; any user can connect to a socket without a file."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


def receive(connection: socket.socket) -> tuple[tuple[Any, ...], list[int]]:
    """Receive a request, and the open files that come with it.

    Raises:
        EOFError: there is none, or it is another user's.
    """
    if not is_own(connection):
        raise EOFError
    size, files, _, _ = socket.recv_fds(connection, NUMBER, ASIDE)
    with connection.makefile("rb") as stream:
        return marshal.loads(stream.read(int.from_bytes(size, "big"))), files


def attend(connection: socket.socket, stage: Stage) -> list[str]:
    """Run the requested program in a new process, and answer with its exit code from this process."""
    if not is_own(connection):
        os._exit(1)
    (words, folder, environment, mask, numbers, around), files = receive(connection)
    if not stage.accepts(environment, around):
        connection.sendall((0).to_bytes(NUMBER, "big"))
        os._exit(0)
    child = os.fork()
    if not child:
        connection.close()
        take_files(dict(zip(numbers, files, strict=True)))
        os.chdir(folder)
        os.umask(mask)
        if words[1] == SUPERVISOR:
            return _supervise(stage)
        take_environment({**environment, **stage.set})
        take_words(words)
        beside = folder if words[1] == "-m" else str(Path(folder, words[1]).parent)
        first = [] if environment.get("PYTHONSAFEPATH") else [beside]
        sys.path[:] = [*first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *stage.paths]
        return list(words)
    # Locks among them are held as long as any process has them open.
    for file in files:
        os.close(file)
    _report_end(connection, child, words[1] == SUPERVISOR)
    os._exit(0)


def _report_end(connection: socket.socket, child: int, supervises: bool) -> None:
    """Send the number of a program's process and, once it has ended, its exit code.

    A supervisor knows by itself when the process that it works for has ended. If it is killed, what it ran ends here.
    """
    from_child = os.pidfd_open(child)
    watched: list[int] = [connection.fileno(), from_child]
    if supervises:
        from profzoo.machine import process_tree, supervisor

        process_tree.adopt_orphans(True)
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(child.to_bytes(NUMBER, "big"))
    while from_child not in select.select(watched, [], [])[0]:
        said = b""
        with suppress(ConnectionResetError):
            said = connection.recv(1)
        if not supervises:
            # The process that represents the program was killed.
            os.kill(child, signal.SIGKILL)
        elif said:
            os.kill(child, signal.SIGTERM)
        if not said:
            watched.remove(connection.fileno())
    _, status = os.waitpid(child, 0)
    if supervises:
        process_tree.end_processes((), supervisor.STAGES["abandoned"])
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(NUMBER, "big", signed=True))


def _supervise(stage: Stage) -> list[str]:
    """Supervise a job in this process; returns the words of the job's program in the process that is to run it."""
    from profzoo.machine import supervisor

    try:
        code = supervisor.main(lambda request, given: _fork_program(stage, request, given))
    except BecomeProgram as program:
        return program.words
    os._exit(code)


def _fork_program(stage: Stage, request: Mapping[str, Any], given: int) -> int:
    """Fork a job's program from its supervisor; returns its number there, and in the program leaves what ran.

    request: to the supervisor. given: the descriptor of the program's output.
    """
    from profzoo.machine import process_tree, surroundings

    own = os.getpid()
    if child := os.fork():
        return child
    try:
        process_tree.die_with(own)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            take_files({0: nothing.fileno(), 1: given, 2: given}, close=False)
        for number in surroundings.open_files():
            if number > 2 and number not in {given, *request["held"], *stage.files}:
                with suppress(OSError):
                    os.close(number)
        become(stage, request["command"], request["environment"])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    raise BecomeProgram(request["command"])


def become(stage: Stage, words: list[str], environment: Mapping[str, str]) -> None:
    """In a program's process, which has its files: take over what else the program begins with."""
    from profzoo.machine import surroundings

    os.setsid()
    reset_signals()
    take_environment({**environment, **stage.set})
    take_words(words)
    draw_anew()
    surroundings.map_again(stage.ranges)


def main(arguments: Sequence[str]) -> list[str]:
    """Import the modules of each stage and serve it; returns only in processes that are to run a program: its words."""
    kind, descriptors, *words = arguments
    # Read first, because imported modules set variables.
    began = dict(os.environ)
    own_folders = set(filter(None, began.get("PYTHONPATH", "").split(os.pathsep)))
    around: Sequence[Any] = []
    if kind == JOBS:
        from profzoo.machine import process_tree, surroundings

        around = surroundings.describe(sys.orig_argv[0])
        process_tree.die_with(os.getppid())
    stages = [list(group) for is_word, group in itertools.groupby(words, lambda word: word != THEN) if is_word]
    listeners = [socket.socket(fileno=int(number)) for number in descriptors.split(",")]
    # No job begins, and is measured, while a later stage still imports: the pipe ends once all have imported.
    ended, importing_on = os.pipe()
    inherited = {*surroundings.open_files()} if kind == JOBS else set[int]()
    for number, (listener, modules) in enumerate(zip(listeners, stages, strict=True)):
        import_stage(kind, modules)
        ranges = surroundings.mapped_ranges() if kind == JOBS else []
        stage = Stage(
            kind,
            common_variables(began) if kind == JOBS else read_once(began),
            around,
            [path for path in sys.path if path not in own_folders],
            read_states(),
            {name: value for name, value in os.environ.items() if began.get(name) != value},
            frozenset({*surroundings.open_files()} - inherited if kind == JOBS else ()),
            ranges,
        )
        # The fork goes on with the next stage.
        if number + 1 == len(stages) or os.fork():
            for other in listeners[number + 1 :]:
                other.close()
            os.close(importing_on)
            os.read(ended, 1)
            os.close(ended)
            words = serve(listener, stage)
            if kind == SCRIPTS:
                forget_if_changed(dict(stage.states))
            return words
        listener.close()
        # It would otherwise outlive this process by its imports.
        process_tree.die_with(os.getppid())
        surroundings.map_again(ranges)
    raise AssertionError("the last stage serves")


def import_stage(kind: str, modules: Sequence[str]) -> None:
    """Import the modules of a stage; end the process if forks of it could not be what a job's process is."""
    if kind == SCRIPTS:
        import_all(modules)
        import_all([later for name in LATER if name in sys.modules for later in LATER[name]])
        # Forks then share the memory of all objects.
        gc.freeze()
        return
    from profzoo.machine import surroundings

    if surroundings.explain_unlike():
        os._exit(1)
    with _noting_output() as printed, importing():
        import_all(modules)
    if printed or surroundings.explain_unlike() or surroundings.explain_unsafe(kind == PROFILED):
        os._exit(1)


if __name__ == "__main__":
    to_run = main(sys.argv[1:])
    end_process(exit_code(lambda: run(to_run)))
