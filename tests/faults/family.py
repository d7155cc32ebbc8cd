"""A job as the workflow starts it, with a program of several processes: which of them live, and what they hold."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profzoo.machine import gpu_slots, job_limits, process_tree

PROJECT = Path(__file__).parents[2]
GPU = "GPU-a"
# Seconds after which all processes of a job except snakemake must have ended.
SECONDS = 5.0
# Processes that may use the GPU.
USERS = {"program", "worker", "agent"}
# A program that begins as a measured one does, with a worker in its group, and an agent that has left its session and
# heeds no SIGTERM, as nsys' own does; each leaves its id.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from profzoo.machine import job_child
job_child.enter_job()
folder, stay = Path(sys.argv[1]), float(sys.argv[2])
def live(name):
    (folder / f"{name}.new").write_text(str(os.getpid()))
    (folder / f"{name}.new").rename(folder / name)
    time.sleep(stay if name == "program" else 120)
if not os.fork():
    live("worker")
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    live("agent")
while not all((folder / name).exists() for name in ("worker", "agent")):
    time.sleep(0.01)
live("program")
"""
# Runs a command as `python -m profzoo.collect` does.
WRAPPER = """
import json, sys
from pathlib import Path
from profzoo.collect import environment as job_environment
folder, command = Path(sys.argv[1]), sys.argv[3:]
with job_environment.prepare_job(json.loads(sys.argv[2]), ["GPU-a"]) as (environment, mine, guard):
    (folder / "scratch").write_text(environment["TMPDIR"])
    code = job_environment.run_logged(command, folder / "log", environment, guard)
sys.exit(code % 256)
"""
# Runs a job as snakemake does.
OWNER = """
import subprocess, sys
from profzoo.machine import job_child
job_child.export_owner()
sys.exit(subprocess.run(["bash", "-c", '"$@"; code=$?; exit $code', "bash", *sys.argv[1:]]).returncode)
"""
# Kinds of the processes of a run, by their command lines.
KINDS = {
    "snakemake": r"^\S+ -m snakemake ", "wrapper": r"^\S+ -m profzoo\.collect ",
    "supervisor": r"profzoo\.machine\.supervisor", "nsys": r"^\S*nsys profile ", "agent": r"nsys --start-agent",
    "ncu": r"^\S*ncu ", "model": r"^\S+ -m models",
}  # fmt: skip
JOB = {"tool": "time", "cell": {"model": "lstm", "phase": "train", "device": "auto"}, "environment": []}


@dataclass
class Family:
    """A started job; folder: folder in which its processes write their ids."""

    folder: Path
    outer: subprocess.Popen[bytes]

    def ids(self) -> dict[str, int]:
        names = ("program", "worker", "agent")
        found = {name: int((self.folder / name).read_text()) for name in names}
        supervisor = int(process_tree.read_stat(found["program"])[1])
        wrapper = int(process_tree.read_stat(supervisor)[1])
        shell = int(process_tree.read_stat(wrapper)[1])
        outer = {"shell": shell, "owner": self.outer.pid} if wrapper != self.outer.pid else {}
        return {**found, "supervisor": supervisor, "wrapper": wrapper, **outer}

    def scratch(self) -> Path:
        return Path((self.folder / "scratch").read_text())

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def end(self) -> None:
        """End all processes of the job and remove its files."""
        for name in ("program", "worker", "agent"):
            with suppress(OSError, ValueError):
                os.kill(int((self.folder / name).read_text()), signal.SIGKILL)
        self.outer.kill()
        self.outer.wait()


def environment(folder: Path, time_s: float | None = None) -> dict[str, str]:
    """Return the environment of a job with separate locks and temporary files."""
    # Of a short path: where it is long jobs have theirs in a place that those of other tests sweep too.
    if not (folder / "tmp").exists():
        (folder / "tmp").symlink_to(tempfile.mkdtemp(prefix="family-"))
    told = {"locks": str(folder / "locks"), "time_s": {"time": time_s}}
    own = {"TMPDIR": str((folder / "tmp").resolve()), job_limits.LIMITS: json.dumps(told), "PYTHONPATH": str(PROJECT)}
    return {**os.environ, **own}


def begun(
    folder: Path, owned: bool = False, stay: float = 100, time_s: float | None = None, around: tuple[str, ...] = ()
) -> Family:
    """Start a job and wait for all its processes; around: words before the program, such as a profiler's."""
    program = [*around, sys.executable, "-c", PROGRAM, str(folder), str(stay)]
    words = [sys.executable, "-c", WRAPPER, str(folder), json.dumps(JOB), *program]
    words = [sys.executable, "-c", OWNER, *words] if owned else words
    family = Family(folder, subprocess.Popen(words, cwd=folder, env=environment(folder, time_s), preexec_fn=heed))
    try:
        until(lambda: (folder / "program").exists(), 30)
    except TimeoutError:
        family.end()
        raise
    return family


def heed() -> None:
    """Restore the default effects of signals, whatever process started the tests."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def alive(process: int) -> bool:
    return process_tree.is_alive(process)


def until(true: Callable[[], bool], seconds: float) -> float:
    """Wait until a condition is true, and return the seconds that this took.

    Raises:
        TimeoutError: the condition was not true in time.
    """
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - began


def free(folder: Path) -> bool:
    """Return whether another job could use the GPU."""

    def refuse(line: str) -> None:
        raise BlockingIOError(line)

    try:
        with gpu_slots.hold_gpus(1, [GPU], refuse, gpu_slots.LockTerms(folder / "locks")):
            return True
    except BlockingIOError:
        return False


def all_end(folder: Path, processes: Mapping[str, int], seconds: float = SECONDS) -> float:
    """Wait until these processes have ended, check that the GPU is not free before, and return the seconds."""

    def over() -> bool:
        # This order matters, because processes may end between the two questions.
        unlocked, left = free(folder), {name for name, process in processes.items() if alive(process)}
        assert not (unlocked and left & USERS), f"the GPU is free, and {left} live"
        return not left

    return until(over, seconds)


def next_job(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a job that uses the same GPU for a moment."""
    words = [sys.executable, "-c", WRAPPER, str(folder), json.dumps(JOB), "true"]
    return subprocess.run(
        words, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=30, check=False
    )


def marked(word: str) -> dict[int, str]:
    """Return command lines of processes with this `NAME=value` in their environment, and of their supervisors."""
    found = {}
    for process in process_tree.running_processes():
        with suppress(OSError):
            if word.encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0") and alive(process):
                found[process] = line(process)
                above = int(process_tree.read_stat(process)[1])
                found |= {above: line(above)} if re.search(KINDS["supervisor"], line(above)) else {}
    return found


def line(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def member(word: str, kind: str) -> int:
    """Return the process of a kind among those with this word in their environment.

    Raises:
        StopIteration: no such process exists.
    """
    found = {process: text for process, text in sorted(marked(word).items()) if re.search(KINDS[kind], text)}
    return next(iter(found))
