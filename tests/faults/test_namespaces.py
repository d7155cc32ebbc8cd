"""A job in a namespace of its own: who sees whom, what ends with whom, and what a real nsys records of others."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profzoo.machine import namespace, processes
from profzoo.machine.processes import ProcessLimits
from tests import slow
from tests.faults import family
from tests.workflow.test_nsys import NSYS
from tests.workflow.test_nsys import pytestmark as needs_nsys

pytestmark = pytest.mark.skipif(
    bool(namespace.why_unavailable()), reason=f"no namespaces here: {namespace.why_unavailable()}"
)
SECRET, LINE = "xk29QmvZ73", "word-of-another-command"
LIST = "import json, os; print(json.dumps([os.getpid(), [name for name in os.listdir('/proc') if name.isdigit()]]))"
# Leaves its number, as it is seen from outside, and a child that has left its session.
STAY = """
import os, sys, time
if not os.fork():
    os.setsid()
open(sys.argv[1] + "/ready" + str(os.getpid()), "w").close()
time.sleep(100)
"""


def ran(folder: Path, *command: str, apart: bool = True) -> tuple[int, str]:
    """Exit code and what was printed."""
    with (folder / "log").open("wb") as log:
        code = processes.run_command(command, log, None, ProcessLimits(apart=apart))
    return code, (folder / "log").read_text()


def test_a_job_sees_its_own_processes_alone(tmp_path: Path) -> None:
    code, printed = ran(tmp_path, sys.executable, "-c", LIST)
    own, seen = json.loads(printed)
    assert code == 0 and {str(own), "1"} == set(seen)
    assert len(json.loads(ran(tmp_path, sys.executable, "-c", LIST, apart=False)[1])[1]) > 2


@pytest.mark.parametrize(
    ("program", "code"),
    [("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV), ("kill -KILL $$", 128 + signal.SIGKILL), ("true", 0)],
)
def test_how_it_ended_is_said_outside(tmp_path: Path, program: str, code: int) -> None:
    assert ran(tmp_path, "bash", "-c", program)[0] == code


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    code, printed = ran(tmp_path, "no-such-program")
    assert code == 127 and "no-such-program cannot be started" in printed


def inside(folder: Path) -> list[int]:
    """The processes that the test's program has become, by their numbers outside."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and family.alive(int(path.name)):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:3] == [b"-c", STAY.encode()] and str(folder).encode() in words:
                found.append(int(path.name))
    return found


@pytest.mark.parametrize("kind", slow.first(["wrapper", "supervisor", "first", "outside"]))
def test_all_end_with_any_of_those_around(tmp_path: Path, kind: str) -> None:
    code = (
        "import sys; from pathlib import Path; from profzoo.machine import processes\n"
        "log = open(sys.argv[1] + '/log', 'wb')\n"
        "sys.exit(processes.run_command([sys.executable, '-c', sys.argv[2], sys.argv[1]], log, None, "
        "processes.ProcessLimits(apart=True)) % 256)"
    )
    wrapper = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), STAY], cwd=family.PROJECT)
    try:
        family.until(lambda: len(list(tmp_path.glob("ready*"))) == 2 and len(inside(tmp_path)) == 2, 20)
        program = min(inside(tmp_path))
        first = int(family.process_tree.read_stat(program)[1])
        outside = int(family.process_tree.read_stat(first)[1])
        supervisor = int(family.process_tree.read_stat(outside)[1])
        assert int(family.process_tree.read_stat(supervisor)[1]) == wrapper.pid
        all_of_them = [*inside(tmp_path), first, outside, supervisor]
        victims = {"wrapper": wrapper.pid, "supervisor": supervisor, "first": first, "outside": outside}
        os.kill(victims[kind], signal.SIGKILL)
        family.until(lambda: not any(map(family.alive, all_of_them)), family.SECONDS)
    finally:
        wrapper.kill()
        wrapper.wait()


@pytest.fixture
def other() -> Iterator[None]:
    """Another process, with something in its environment and its words that is nobody's business."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(100)", LINE], env=os.environ | {"TOKEN": SECRET}
    )
    time.sleep(0.3)
    yield
    process.kill()
    process.wait()


def recorded(folder: Path, apart: bool) -> tuple[bytes, set[str]]:
    """A report by a real nsys with its export, as they are, and the names of processes in it."""
    report = folder / f"report{apart}"
    traced = [sys.executable, "-c", "import time; time.sleep(0.2)"]
    words = [str(NSYS / "nsys"), "profile", "--sample=none", "--cpuctxsw=none", "-t", "osrt", "-o", str(report)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    with (folder / "log").open("wb") as log:
        assert processes.run_command([*words, *traced], log, environment, ProcessLimits(apart=apart)) == 0, (
            folder / "log"
        ).read_text()
    export = [str(NSYS / "nsys"), "export", "--type=sqlite", f"--output={report}.sqlite", f"{report}.nsys-rep"]
    subprocess.run(export, check=True, capture_output=True, env=environment)
    with closing(sqlite3.connect(f"{report}.sqlite")) as database:
        names = {name for (name,) in database.execute("SELECT name FROM PROCESSES")}
    return b"".join(Path(f"{report}{end}").read_bytes() for end in (".nsys-rep", ".sqlite")), names


@pytest.mark.slow
@needs_nsys[0]
@needs_nsys[1]
def test_nsys_records_no_other_process(tmp_path: Path, other: None) -> None:
    content, names = recorded(tmp_path, apart=True)
    assert SECRET.encode() not in content and LINE.encode() not in content
    assert "kthreadd" not in names and any("python" in name for name in names)
    # What it records without.
    content, names = recorded(tmp_path, apart=False)
    assert (SECRET.encode() in content or LINE.encode() in content) and len(names) > 10
