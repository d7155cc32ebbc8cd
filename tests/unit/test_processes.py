"""Nothing that a command started outlives the call, however it, or this process, ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from profzoo.collect import failures
from profzoo.machine import gpu_slots, process_tree, processes, supervisor
from tests import slow
from tests.faults.jobs import wait, wait_for_ends

PROJECT = Path(__file__).parents[2]


# A program whose child heeds no SIGTERM, in its group or in a session of its own; both leave their ids.
STUBBORN = """
import os, signal, sys, time
folder, detached, stay = sys.argv[1], sys.argv[2] == "detached", float(sys.argv[3])
if not os.fork():
    if detached:
        os.setsid()
        if os.fork():
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(f"{folder}/grandchild", "w").write(f"{os.getpid()}.")
    time.sleep(120)
open(f"{folder}/child", "w").write(f"{os.getpid()}.")
while not os.path.exists(f"{folder}/grandchild"):
    time.sleep(0.01)
time.sleep(stay)
"""


# Collects as a job does, with a lock in a folder of the test's own, and says when it has let go.
COLLECTING = """
import sys
from pathlib import Path
from profzoo.machine import gpu_slots
from profzoo.machine import processes
folder = Path(sys.argv[1])
terms = gpu_slots.LockTerms(folder)
with gpu_slots.hold_gpus(1, ["GPU-a"], print, terms) as mine, (folder / "log").open("wb") as log:
    guard = processes.ProcessLimits(held=mine.descriptors)
    code = processes.run_command([sys.executable, "-c", *sys.argv[2:]], log, None, guard)
sys.exit(code)
"""


def started(folder: Path, kind: str, stay: float) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process that collects, and the ids of what its command is made of."""
    words = [sys.executable, "-c", COLLECTING, str(folder), STUBBORN, str(folder), kind, str(stay)]
    process = subprocess.Popen(words, cwd=PROJECT, preexec_fn=heed_signals)
    return process, written(folder / "child"), written(folder / "grandchild")


def heed_signals() -> None:
    """Signals do what they do by default, also where whatever started the tests ignores them, as nohup does."""
    for number in processes.HEEDED:
        signal.signal(number, signal.SIG_DFL)


def written(path: Path) -> int:
    """The process id in a file, once it is there."""
    wait(lambda: path.exists() and path.read_text().endswith("."))
    return int(path.read_text().rstrip("."))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in ("child", "grandchild"):
        with suppress(OSError, ValueError):
            os.kill(int((tmp_path / name).read_text().rstrip(".")), signal.SIGKILL)


def free(folder: Path) -> bool:
    """Whether another job could take the GPU."""

    def refuse(line: str) -> None:
        raise TimeoutError(line)

    try:
        with gpu_slots.hold_gpus(1, ["GPU-a"], refuse, gpu_slots.LockTerms(folder)):
            return True
    except TimeoutError:
        time.sleep(0.05)
        return False


@pytest.mark.parametrize(
    ("kind", "number"),
    slow.first(itertools.product(["detached", "attached"], [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])),
)
def test_a_signal_ends_all_before_the_gpu_is_free(folder: Path, kind: str, number: signal.Signals) -> None:
    process, child, grandchild = started(folder, kind, 60)
    assert process_tree.is_alive(child) and process_tree.is_alive(grandchild) and not free(folder)
    process.send_signal(number)
    # A second one must not spare the grandchild.
    time.sleep(0.1)
    process.send_signal(number)
    wait(lambda: free(folder))
    assert not process_tree.is_alive(child) and not process_tree.is_alive(grandchild)
    assert process.wait(timeout=30) == 128 + number
    assert failures.read_cause([str(folder / "log")]) == supervisor.TOLD_TO_END


def test_a_killed_collector_takes_its_command_along(folder: Path) -> None:
    process, child, _ = started(folder, "attached", 60)
    process.kill()
    process.wait()
    wait_for_ends([child], 10)
    assert failures.read_cause([str(folder / "log")]) == supervisor.TOLD_TO_END


def test_other_children_of_this_process_are_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        with (tmp_path / "log").open("wb") as log:
            assert processes.run_command(["sh", "-c", "echo said; exit 3"], log, os.environ) == 3
        assert (tmp_path / "log").read_text() == "said\n" and other.poll() is None
    finally:
        other.kill()
        other.wait()


# A SIGTERM that comes as the supervisor is about to be told of signals; what it is to run says where.
INTERRUPTED = """
import os, signal
from profzoo.machine import supervisor
told = signal.set_wakeup_fd
def interrupted(*given, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return told(*given, **options)
signal.set_wakeup_fd = interrupted
supervisor.main()
"""


def test_no_signal_is_lost_as_the_supervisor_starts() -> None:
    request = {
        "command": ["sleep", "60"],
        "environment": {},
        "held": [],
        "seconds": None,
        "apart": False,
        "scratch": "",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.write(f"{json.dumps(request)}\n")
        process.stdin.flush()
    try:
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_an_ignored_signal_stays_ignored(folder: Path) -> None:
    """As nohup wants it."""
    staying = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}.'); time.sleep(0.3)"
    words = [sys.executable, "-c", COLLECTING, str(folder), staying, str(folder / "child")]
    process = subprocess.Popen(["nohup", *words], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    written(folder / "child")
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 0


def test_a_supervisor_that_was_killed_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w+b") as file:
        stays = f"setsid bash -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 60' &"
        waits = f"until [ -e {tmp_path}/pid ]; do sleep 0.01; done"
        command = ["bash", "-c", f"{stays} {waits}; kill -9 $PPID; sleep 60"]
        assert processes.run_command(command, file, None) == -9
        # What has left its session ends as well, though its parents went first.
        assert not process_tree.is_alive(int((tmp_path / "pid").read_text()))
        assert processes.run_command(["bash", "-c", "exit 4"], file, None) == 4
    assert log.read_text() == "profzoo: the job's supervisor was killed, and its processes with it\n"
