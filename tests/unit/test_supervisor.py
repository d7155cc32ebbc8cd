"""How a job's processes are watched, kept apart from others and ended, one after the other."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.machine import namespace, process_tree, scratch_folder, supervisor

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "count"), [("pgfault 9\noom_kill 3\n", 3), ("pgfault 9\n", 0), ("oom_kill\n", 0), ("oom_kill x\n", None)]
)
def test_oom_kills_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, count: int | None) -> None:
    monkeypatch.setattr(namespace, "COUNTS", tmp_path / "vmstat")
    assert namespace.count_oom_kills() == 0
    (tmp_path / "vmstat").write_text(text)
    if count is not None:
        assert namespace.count_oom_kills() == count


# Processes.


@pytest.fixture
def child() -> Iterator[Callable[[str], subprocess.Popen]]:
    """Starts shells, in sessions of their own, once they are as far as to say so."""
    begun: list[subprocess.Popen] = []

    def start(code: str) -> subprocess.Popen:
        begun.append(subprocess.Popen(["bash", "-c", code], stdout=subprocess.PIPE, start_new_session=True))
        assert begun[-1].stdout and begun[-1].stdout.readline()
        return begun[-1]

    yield start
    for one in begun:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        assert one.stdout
        one.stdout.close()


def test_a_process_is_known_by_when_it_began_until_it_ends(child: Callable[[str], subprocess.Popen]) -> None:
    process = child("echo; exec sleep 60")
    fields = Path(f"/proc/{process.pid}/stat").read_text().split()
    # Field 22 of proc(5), counted from 1; the name here has no space.
    assert (
        process_tree.process_identity(process.pid)
        == f"{process.pid}:{fields[21]}:{Path('/proc/self/ns/pid').stat().st_ino}"
    )
    assert process_tree.is_alive(process.pid) and process_tree.read_stat(process.pid)[1] == str(os.getpid())
    assert process_tree.list_descendants()[process.pid] in "RSD" and process.pid in process_tree.list_alive(set())
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    # It has ended, and waits for this process to ask.
    assert (
        not process_tree.is_alive(process.pid)
        and process_tree.process_identity(process.pid) == ""
        and process_tree.read_stat(process.pid)[0] == "Z"
    )
    assert process_tree.read_stat(2**22 + 1) == [] and not process_tree.is_alive(2**22 + 1)


def test_stages_end_what_is_left_one_after_the_other(child: Callable[[str], subprocess.Popen]) -> None:
    before = set(process_tree.list_descendants())
    deaf = child("trap '' TERM; echo; while :; do sleep 0.05; done")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    began = time.monotonic()
    left = process_tree.end_processes(before, [(0.2, 0), (0.2, signal.SIGTERM)], wait)
    assert deaf.pid in left and 0.4 <= time.monotonic() - began < 3 and set(waits) == {0.05} and len(waits) >= 6
    assert process_tree.end_processes({*before, *left}, [(5, signal.SIGKILL)]) == [] and process_tree.is_alive(deaf.pid)
    assert process_tree.end_processes(before, [(0.2, 0), (5, signal.SIGKILL)]) == [] and not process_tree.is_alive(
        deaf.pid
    )


def test_each_process_is_told_once_in_a_stage(child: Callable[[str], subprocess.Popen], tmp_path: Path) -> None:
    before = set(process_tree.list_descendants())
    child(f"trap 'echo told >> {tmp_path}/said' TERM; echo; while :; do read -t 0.02 <> <(:); done")
    process_tree.end_processes(before, [(0.3, signal.SIGTERM), (5, signal.SIGKILL)])
    assert (tmp_path / "said").read_text() == "told\n"


def watched(child: subprocess.Popen, seconds: float | None, wake: bytes = b"", ask: bool = False) -> tuple[str, int]:
    """How a supervisor sees a command end, which is woken by these signals; ask: whether its own parent is gone."""
    asked, asker = os.pipe()
    woken, waker = os.pipe()
    printed = SimpleNamespace(source=os.pipe()[0], read=lambda: True)
    before = supervisor.ASKED
    supervisor.ASKED = asked
    try:
        if ask:
            os.close(asker)
        os.write(waker, wake)
        return supervisor._watched(child, seconds, woken, printed)  # type: ignore[arg-type]
    finally:
        supervisor.ASKED = before
        for file in (asked, woken, waker, printed.source, *([] if ask else [asker])):
            os.close(file)


def test_a_supervisor_tells_how_a_command_came_to_its_end(child: Callable[[str], subprocess.Popen]) -> None:
    process = child("echo; exec sleep 60")
    began = time.monotonic()
    assert watched(process, 0.2) == ("late", 124) and 0.2 <= time.monotonic() - began < 3
    assert watched(process, None, bytes([signal.SIGTERM])) == ("signal", 128 + 15)
    assert watched(process, 60.0, bytes([signal.SIGCHLD, signal.SIGHUP])) == ("signal", 128 + 15)
    assert watched(process, None, ask=True) == ("abandoned", 128 + 9)
    # What is only a child's change of state, while the command goes on, ends nothing.
    assert watched(process, 0.1, bytes([signal.SIGCHLD])) == ("late", 124)
    for code, ends in (("exit 3", 3), ("kill -9 $$", -9)):
        process = child(f"echo; {code}")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert watched(process, 60.0, bytes([signal.SIGCHLD])) == ("ended", ends)


def test_what_to_run_may_come_in_parts_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for parts, said in (((b'{"a": ', b"1}\n"), {"a": 1}), ((b'{"a": 1}',), {}), ((), {})):
        coming = iter([*parts, b""])
        monkeypatch.setattr(supervisor.os, "read", lambda file, size: next(coming))  # noqa: B023
        assert supervisor._request() == said
    monkeypatch.undo()


def test_processes_have_five_seconds_in_all_before_they_are_killed() -> None:
    for stages in supervisor.STAGES.values():
        *asked, (patience_s, last) = stages
        assert sum(seconds for seconds, _ in asked) <= 3 and (patience_s, last) == (60, signal.SIGKILL)
        assert asked[-1][1] == signal.SIGTERM and min(seconds for seconds, _ in asked) >= 0.5


# Namespaces.


def test_numbers_of_the_kernel_are_those_of_its_headers() -> None:
    """clone(2), mount(2) and prctl(2): those of statvfs(3) are the same three."""
    assert (namespace.NEWNS, namespace.NEWUSER, namespace.NEWPID) == (1 << 17, 1 << 28, 1 << 29)
    assert (namespace.NOSUID, namespace.NODEV, namespace.NOEXEC) == (os.ST_NOSUID, os.ST_NODEV, os.ST_NOEXEC)
    assert (namespace.REC, namespace.PRIVATE) == (1 << 14, 1 << 18)
    namespace._check(0)
    assert (process_tree.PDEATHSIG, process_tree.CHILD_SUBREAPER) == (
        1,
        36,
    ) and os.getpid() in process_tree.running_processes()


def test_a_code_is_as_a_shell_tells_it() -> None:
    assert [namespace._code(status) for status in (0, 3 << 8, 9, 15)] == [0, 3, 137, 143]


def test_a_failed_call_raises_its_error() -> None:
    namespace._check(0)
    namespace.ctypes.set_errno(errno.EPERM)
    with pytest.raises(PermissionError):
        namespace._check(-1)


APART = """
import os, sys
from profzoo.machine import namespace
os.pipe()
process = os.fork()
if not process:
    namespace.enter_namespace()
    os.execvp("bash", ["bash", "-c", sys.argv[1]])
print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


# As root, in mounts of its own: nothing that goes wrong here reaches those of the machine.
ALONE = ["unshare", "--mount", "--propagation", "private"]


def test_a_program_apart_has_numbers_of_its_own_and_its_code_comes_back() -> None:
    if subprocess.run([*ALONE, "--pid", "--fork", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no namespaces here")
    assert namespace._code(9) == 128 + 9
    asked = {
        # Number 2 behind the first, in a session of its own.
        "read -a all < /proc/2/stat; echo $$ $PPID ${all[5]} /proc/[0-9]*; exit 3": ["2 1 2 /proc/1 /proc/2", "3"],
        "kill -TERM $$": ["143"],
        # What outlives it may end by itself; what does not within two seconds goes.
        "(sleep 0.3; echo late) & exit 5": ["late", "5"],
        "sleep 60 > /dev/null & exit 6": ["6"],
    }
    began = time.monotonic()
    running = [
        subprocess.Popen(
            [*ALONE, sys.executable, "-c", APART, code], cwd=PROJECT, stdout=subprocess.PIPE, text=True
        )
        for code in asked
    ]  # fmt: skip
    printed = [one.communicate(timeout=30)[0].splitlines() for one in running]
    assert printed == list(asked.values()) and 2 <= time.monotonic() - began < 10


def test_a_job_that_nobody_looks_after_is_ended_and_its_folder_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: Callable[[str], subprocess.Popen]
) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    (folder := tmp_path / "profzoo-job-x").mkdir()
    monkeypatch.setenv(scratch_folder.JOB, str(folder))
    marked = child("echo; exec sleep 60")
    monkeypatch.setenv(scratch_folder.JOB, str(tmp_path / "profzoo-job-y"))
    other = child("echo; exec sleep 60")
    # A fork, whose environment is shown as another's, has the folder's pipe open.
    os.mkfifo(folder / scratch_folder.PIPE)
    forked = child(f"exec 3<>{folder / scratch_folder.PIPE}; echo; exec sleep 60")
    # Of all processes these alone are looked at, whatever mistake is planted.
    monkeypatch.setattr(
        scratch_folder.process_tree, "running_processes", lambda: [marked.pid, other.pid, forked.pid, 2**22 + 1]
    )
    assert scratch_folder._marked([folder]) == [marked.pid, forked.pid] and scratch_folder._marked([]) == []
    assert scratch_folder.sweep_abandoned() == [marked.pid, forked.pid] and not folder.exists()
    assert not any(map(process_tree.is_alive, (marked.pid, forked.pid))) and process_tree.is_alive(other.pid)
