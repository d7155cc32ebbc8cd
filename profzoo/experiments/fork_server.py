"""Forks measured processes from one that has imported everything: `python -m ... DESCRIPTOR MODULE WORDS ...`.

`forked_runs` starts this program. It imports the module (such as `models.run`), lets the module's `prepare` do for
these words what every process would do before it needs a device, and then forks one process per request; each runs the
module's `main`. A fork inherits memory, but no other threads, and CUDA does not work in it if it was initialised
before. The program therefore forks only if it has a single thread and CUDA is untouched; otherwise it says why not and
ends. Requests and answers are JSON messages on the socket with the given descriptor. The program ends when the socket
is closed by the other side, and its processes end with it.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from profzoo.machine import job_child, process_tree

# Function that runs a command line and returns its exit code.
Program = Callable[[Sequence[str]], int]
# The longest message, and the most descriptors in one: output and shifts.
MESSAGE_BYTES, DESCRIPTORS = 1 << 17, 2
# Makes torch count GPUs by NVML; its other way initialises CUDA, after which forks cannot use it.
COUNT_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
# Keeps torch from starting processes and threads that compile when its compiler is imported.
NO_COMPILE_WORKERS = {"TORCH_WARM_POOL": "0"}
# Torch's module for CUDA; and a device file that CUDA opens as it is initialised, and NVML does not.
CUDA, OF_CUDA = "torch.cuda", "/dev/nvidia-uvm"
# Threads that were told to end get so long.
ENDING_S = 1.0
# Threads that a library stops before a fork and starts again in the fork, by their names in the kernel: pyarrow's
# allocator has one, which transformers imports (jemalloc, background_thread.c: background_thread_postfork_child).
SAFE_THREADS = ("jemalloc_bg_thd",)


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
    extra = {COUNT_BY_NVML: "1", **NO_COMPILE_WORKERS}
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        program = importlib.import_module(module)
        program.prepare(words)
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})
    # Collecting garbage in a fork would copy the memory that it shares with this process.
    gc.collect()
    gc.freeze()
    main: Program = program.main
    return main


def explain_unsafe() -> str:
    """Reason why this process cannot be forked safely; empty if it can.

    A first fork asks torch whether CUDA was touched before. That fork also makes OpenBLAS end its threads; it does so
    before each fork, and starts them again when they are needed.
    """
    cuda = sys.modules.get(CUDA)
    child = os.fork()
    if not child:
        os._exit(int(cuda is not None and cuda._is_in_bad_fork()))
    _, status = os.waitpid(child, 0)
    if status or (cuda is not None and cuda.is_initialized()) or OF_CUDA in _open_files():
        return "CUDA was initialised by an import or by building the network"
    until = time.monotonic() + ENDING_S
    while (count := count_threads()) > 1 and time.monotonic() < until:
        time.sleep(0.01)
    if count <= 1:
        return ""
    return f"an import or building the network started {count - 1} thread(s): {', '.join(_other_threads())}"


def _open_files() -> set[str]:
    """Return the paths of the files that this process has open."""
    found = set[str]()
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor of the listing itself is closed by now.
        with suppress(OSError):
            found.add(str(link.readlink()))
    return found


def count_threads() -> int:
    """Number of threads of this process, without safe ones: as the kernel or as Python counts, whichever is more."""
    return max(1 + len(_other_threads()), threading.active_count())


def _other_threads() -> list[str]:
    """Names of the threads beside this one: those that Python started, and all others as the kernel has them."""
    python = {one.native_id: one.name for one in threading.enumerate()}
    found = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may have ended by now.
        with suppress(OSError):
            if int(task.name) != threading.get_native_id() and (name := (task / "comm").read_text().strip()):
                found += [] if name in SAFE_THREADS else [python.get(int(task.name)) or name]
    return sorted(found)


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
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._wake)
        self._asked.close()
        os.environ.update(request["variables"])
        if request["printed"]:
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[0], 2)
        if request["shift"]:
            # The program duplicates it before this copy is closed, so it gets one of its own.
            os.environ[request["shift"]] = str(os.dup(descriptors[-1]))
        if numpy := sys.modules.get("numpy"):
            # As in a process of its own. Python's random does so by itself, and the cell's seed sets torch's.
            numpy.random.seed()
        return run_program(self._program, request["words"])


def run_program(program: Program, words: Sequence[str]) -> int:
    """Run a program's command line; returns the exit code that Python would end with."""
    try:
        return program(words)
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1


def end_process(code: int) -> None:
    """End this process as Python does, but without freeing its memory: all that is shared would be copied first."""
    # Waits for threads that Python itself would wait for.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


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
            why = explain_unsafe()
        except Exception as error:
            why = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        asked.send(json.dumps({"why": why}).encode())
        return 1 if why else ForkServer(asked, program).serve()


if __name__ == "__main__":
    end_process(main())
