"""What the machine's parts are worked out to do: limits of time, what nvidia-smi says, ends of logs and of processes."""

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
from typing import Any

import pytest

from profzoo.errors import ConfigError
from profzoo.machine import (
    doctor_checks,
    external_programs,
    gpus,
    inherited_paths,
    job_child,
    job_limits,
    log_cap,
    namespace,
    oom_kills,
    orphan_guard,
    process_tree,
    processes,
    scratch_folder,
    supervisor,
)
from profzoo.machine.job_limits import Limits
from tests.unit.test_log_cap import kept

PROJECT = Path(__file__).parents[2]


# Limits of time.


def test_a_job_may_take_ten_times_its_plan_and_an_hour_or_a_day_without_one() -> None:
    told = Limits(time_s={"ncu": "plan", "time": 90, "nsys": None})
    assert told.seconds("ncu", 60.0) == 10 * 60 + 3600 and told.seconds("ncu", 0.0) == 3600
    assert told.seconds("ncu", None) == 24 * 60 * 60
    # What is no tool's has the limit of time; and what nobody limits has none.
    assert [told.seconds(job, 60.0) for job in ("time", "train", "peaks", "probe")] == [90.0] * 4
    assert told.seconds("nsys", 60.0) is None and told.seconds("torch", 60.0) is None
    assert Limits().seconds("time", 60.0) is None
    assert job_limits.format_timeout("probe", 90.0).startswith(
        "probe took longer than 90 s"
    ) and "raise time.time_limit" in job_limits.format_timeout("probe", 90.0)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("2m", 120), ("1.5h", 5400), (".5m", 30), ("720h", 2_592_000), (2_592_000, 2_592_000), (" 7 s ", 7), (0.25, 0.25)],
)
def test_times_are_seconds(given: str | float, seconds: float) -> None:
    assert job_limits.parse_seconds(given, "a.b") == seconds


@pytest.mark.parametrize("given", ["0", "0h", "720.1h", 2_592_001, "-1", "1d", "", "1e3", "1234567890", "1:30", True])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a\.b = "):
        job_limits.parse_seconds(given, "a.b")


def configured(folder: str = "/locks", wait: Any = None, limit: Any = "plan", budget: Any = "1h") -> dict:
    return {
        "locks": {"folder": folder, "wait": wait, "overlap": True},
        "ncu": {"time_limit": limit},
        "trials": {"budget": budget},
        "equivalence_margin": 0.03,
    }


def test_jobs_are_told_what_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(job_limits.LIMITS, raising=False)
    assert job_limits.read_limits() == Limits(Path("/tmp/profzoo-gpus"), None, False, None)
    monkeypatch.setenv(job_limits.LIMITS, "{}")
    job_limits.export_limits(configured(wait="2m", limit="3m"), ["ncu"])
    assert job_limits.read_limits() == Limits(Path("/locks"), 120.0, True, {"ncu": 180.0}, 3600.0, 0.03, 1)
    job_limits.export_limits(configured(budget="2m"), ["ncu"], comparisons=7)
    assert job_limits.read_limits() == Limits(Path("/locks"), None, True, {"ncu": "plan"}, 120.0, 0.03, 7)
    job_limits.export_limits(configured(limit=None), ["ncu"])
    assert job_limits.read_limits().time_s == {"ncu": None}


@pytest.mark.parametrize(
    ("given", "key"),
    [({"folder": "locks"}, r"locks\.folder"), ({"wait": "x"}, r"locks\.wait"), ({"limit": "x"}, r"ncu\.time_limit"),
     ({"budget": "x"}, r"trials\.budget")],
)  # fmt: skip
def test_what_jobs_cannot_be_told_is_refused(given: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} = "):
        job_limits.export_limits(configured(**given), ["ncu"])


# What nvidia-smi says.


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Has nvidia-smi print that, and end with that code."""
    (tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")

    def write(printed: str, code: int = 0) -> None:
        path = tmp_path / "programs" / "nvidia-smi"
        path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\nexit {code}\n")
        path.chmod(0o755)

    return write


def test_gpus_are_lines_with_all_fields(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("A 100, 580.1, GPU-1, 80 MiB\nN/A\nB, 580.1, none, 1 MiB\nC, 580.1, GPU-2, 1 MiB, more")
    assert gpus.query_nvidia_smi() == (
        [{"gpu": "A 100", "driver": "580.1", "gpu_uuid": "GPU-1", "gpu_memory": "80 MiB"}],
        "",
    )
    nvidia_smi("")
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi shows none")
    nvidia_smi("  no driver \nmore", 9)
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi fails: no driver")
    nvidia_smi("", 9)
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi fails: exit code 9")


def test_compute_capabilities_are_numbers(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("9.0\n8.6\n9.0\n[N/A]\n10\n12.0x")
    assert gpus.read_compute_capabilities() == {9.0, 8.6}
    nvidia_smi("9.0", 1)
    assert gpus.read_compute_capabilities() == set()


def test_others_on_a_gpu_are_those_of_its_uuid_whatever_their_names_hold(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("GPU-1, 12, python, -m x\nGPU-2, 13, b\nGPU-1, 14\nGPU-3, 15, c")
    assert gpus.describe_gpu_processes(["GPU-1", "GPU-3"]) == ["python, -m x (process 12)", "c (process 15)"]
    assert gpus.describe_gpu_processes([]) == [] and gpus.describe_gpu_processes(["GPU-9"]) == []


def test_a_part_of_a_gpu_has_what_all_gpus_share() -> None:
    found = [{"gpu": "A", "driver": "1", "gpu_uuid": "GPU-1"}, {"gpu": "B", "driver": "1", "gpu_uuid": "GPU-2"}]
    assert (
        gpus.describe_gpu("MIG-7", found) == {"driver": "1", "gpu_uuid": "MIG-7"}
        and gpus.describe_gpu("GPU-2", found) == found[1]
    )


def test_a_driver_as_old_as_the_oldest_is_not_too_old() -> None:
    told = [gpus.explain_old_driver(driver, cuda) is not None for driver, cuda in
            (("580.1", "13.0"), ("579.9", "13.0"), ("525.1", "12.8"), ("524.9", "12.8"), ("450.1", "11.0"),
             ("449.9", "11.0"), ("1.0", "14.0"), ("1.0", None), ("N/A", "13.0"))]  # fmt: skip
    assert told == [False, True, False, True, False, True, False, False, False]


# Answers of programs.


def test_the_first_pattern_that_is_found_is_the_cause() -> None:
    causes = (("b.d", "one"), ("a", "two"), ("b", "three"))
    assert [doctor_checks.match_cause(text, causes) for text in ("abcd", "cab", "b", "x")] == [
        "one",
        "two",
        "three",
        None,
    ]
    told = [
        doctor_checks.match_cause(text, doctor_checks.ON_GPU)
        for text in ("CUDA error: misaligned address", "device-side assert")
    ]
    assert told[0] and "compute-sanitizer" in told[0] and told[1] and "out of range" in told[1]


def test_a_program_is_told_by_the_last_line_of_its_version(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("NVIDIA (R)\nVersion 7\n")
    assert external_programs.read_version("nvidia-smi") == "Version 7"
    assert doctor_checks.check_on_path("nvidia-smi", "get it") == doctor_checks.Finding("nvidia-smi", "Version 7")
    nvidia_smi("")
    assert (
        external_programs.read_version("nvidia-smi") == ""
        and doctor_checks.check_on_path("nvidia-smi", "get it").found == "no version"
    )
    assert doctor_checks.check_on_path("none-such", "get it") == doctor_checks.Finding(
        "none-such", "not on PATH", "get it"
    )


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = external_programs.ask_program(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], seconds=0.3)
    assert (answer.returncode, answer.stdout, answer.stderr) == (124, "", "sh did not answer within 0.3 s")
    assert 0.3 <= time.monotonic() - began < 5
    process, until = int((tmp_path / "pid").read_text()), time.monotonic() + 5
    while process_tree.is_alive(process) and time.monotonic() < until:
        time.sleep(0.01)
    assert not process_tree.is_alive(process)
    assert external_programs.ask_program(["none-such"]).returncode == 127


@pytest.mark.parametrize(
    ("text", "count"), [("pgfault 9\noom_kill 3\n", 3), ("pgfault 9\n", 0), ("oom_kill\n", 0), ("oom_kill x\n", None)]
)
def test_kills_for_lack_of_memory_are_the_kernels_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, count: int | None
) -> None:
    monkeypatch.setattr(oom_kills, "COUNTS", tmp_path / "vmstat")
    assert oom_kills.count_oom_kills() == 0
    (tmp_path / "vmstat").write_text(text)
    if count is not None:
        assert oom_kills.count_oom_kills() == count


# Ends of logs.


@pytest.mark.parametrize(("before", "begins"), [(0, 1), (4095, 4096), (4096, 0)])
def test_the_end_begins_behind_a_line_that_ends_within_4096_bytes(tmp_path: Path, before: int, begins: int) -> None:
    end = b"x" * before + b"\n" + b"y" * (10_000 - before - 1)
    found = kept(tmp_path, b"a" * 10_000 + b"b" * 100 + end, 20_000)
    assert found == b"a" * 10_000 + f"\n... {100 + begins:,} bytes left out ...\n".encode() + end[begins:]


def test_a_log_holds_eight_mib_at_most_by_halves(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        pipe = log_cap.CappedLog(file.fileno())
        assert (pipe._first, len(pipe._ring)) == (4 * 2**20, 4 * 2**20)
        os.close(pipe.given)
        pipe.close()


def test_what_comes_meanwhile_is_taken_until_the_time_is_over(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as file:
        pipe = log_cap.CappedLog(file.fileno(), 100)
        os.write(pipe.given, b"said")
        began = time.monotonic()
        pipe.wait(0.15)
        assert 0.15 <= time.monotonic() - began < 2 and (tmp_path / "log").read_bytes() == b"said"
        os.close(pipe.given)
        began, spent = time.monotonic(), time.process_time()
        pipe.wait(0.15)
        # Nobody is left who could print: it sleeps, and looks no more.
        assert 0.15 <= time.monotonic() - began < 2 and time.process_time() - spent < 0.1
        pipe.close()


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


# Folders.


@pytest.mark.parametrize(("length", "short"), [(50, False), (51, True)])
def test_a_folder_of_temporary_files_with_a_long_name_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, length: int, short: bool
) -> None:
    given = "/" + "x" * (length - 1)
    monkeypatch.setattr(scratch_folder.tempfile, "gettempdir", lambda: given)
    assert scratch_folder._places() == (["/tmp", given] if short else [given])


@pytest.mark.parametrize(
    ("mode", "taken"), [(0o700, True), (0o755, True), (0o720, False), (0o702, False), (0o770, False)]
)
def test_compiled_code_is_taken_from_a_folder_that_nobody_else_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, taken: bool
) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    own = tmp_path / f"profzoo-compiled-{os.getuid()}"
    assert (
        scratch_folder.shared_compile_cache() == {"TORCHINDUCTOR_CACHE_DIR": str(own)}
        and own.stat().st_mode & 0o777 == 0o700
    )
    own.chmod(mode)
    assert bool(scratch_folder.shared_compile_cache()) == taken
    own.rmdir()
    own.symlink_to(tmp_path)
    assert scratch_folder.shared_compile_cache() == {}


def test_a_folder_is_abandoned_once_nobody_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    folder, held = scratch_folder.make_scratch()
    assert folder.name.startswith("profzoo-job-") and folder.parent == tmp_path and len(held) == 2
    assert scratch_folder.claim_abandoned(folder) is None and scratch_folder.sweep_abandoned() == [] and folder.exists()
    for descriptor in held:
        os.close(descriptor)
    lock = scratch_folder.claim_abandoned(folder)
    assert lock is not None
    # Now this holds it.
    assert scratch_folder.claim_abandoned(folder) is None
    os.close(lock)
    assert (
        scratch_folder.sweep_abandoned() == []
        and not folder.exists()
        and scratch_folder.claim_abandoned(folder) is None
    )
    # A file where the pipe should be tells nothing.
    folder.mkdir()
    assert not scratch_folder.die_with_folder(folder)
    (folder / scratch_folder.PIPE).touch()
    assert not scratch_folder.die_with_folder(folder)


DEPENDING = """
import os, sys, time
from pathlib import Path
from profzoo.machine import scratch_folder
child = os.fork()
if not child:
    time.sleep(60)
print(child, scratch_folder.die_with_folder(Path(sys.argv[1])), flush=True)
time.sleep(60)
"""


def test_who_depends_on_a_folder_ends_with_it_and_so_does_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    assert not scratch_folder.die_with_folder(tmp_path)
    folder, held = scratch_folder.make_scratch()
    words = [sys.executable, "-c", DEPENDING, str(folder)]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        child, depends = process.stdout.readline().split()
        assert depends == "True" and process_tree.is_alive(int(child))
        for descriptor in held:
            os.close(descriptor)
        assert process.wait(10) == -signal.SIGKILL
    until = time.monotonic() + 5
    while process_tree.is_alive(int(child)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not process_tree.is_alive(int(child))


def test_a_pipe_that_nobody_holds_is_not_waited_for(tmp_path: Path) -> None:
    assert not scratch_folder.die_with_folder(tmp_path)
    os.mkfifo(tmp_path / scratch_folder.PIPE)
    code = "import sys; from pathlib import Path; from profzoo.machine import scratch_folder; print(scratch_folder.die_with_folder(Path(sys.argv[1])))"
    words = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=20, start_new_session=True)
    assert said.stdout == "False\n"


def test_a_job_that_nobody_looks_after_is_ended_and_its_folder_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: Callable[[str], subprocess.Popen]
) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    (folder := tmp_path / "profzoo-job-x").mkdir()
    monkeypatch.setenv(scratch_folder.JOB, str(folder))
    marked = child("echo; exec sleep 60")
    monkeypatch.setenv(scratch_folder.JOB, str(tmp_path / "profzoo-job-y"))
    other = child("echo; exec sleep 60")
    # Of all processes these alone are looked at, whatever mistake is planted.
    monkeypatch.setattr(scratch_folder.process_tree, "running_processes", lambda: [marked.pid, other.pid, 2**22 + 1])
    assert scratch_folder._marked([folder]) == [marked.pid] and scratch_folder._marked([]) == []
    assert scratch_folder.sweep_abandoned() == [marked.pid] and not folder.exists()
    assert not process_tree.is_alive(marked.pid) and process_tree.is_alive(other.pid)


def test_the_umask_of_a_job_is_told_and_set(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        told = job_child.job_variables(tmp_path)
        assert told == {"PROFZOO_JOB": str(tmp_path), "PROFZOO_UMASK": "0027", "PYTHONDONTWRITEBYTECODE": "1"}
        assert os.umask(0) == 0o027
        given = {"PROFZOO_UMASK": "0027", "PYTHONDONTWRITEBYTECODE": "1", "OTHER": "x"}
        job_child.enter_job(given)
        assert given == {"OTHER": "x"} and os.umask(0o027) == 0o027 and not sys.dont_write_bytecode
        # A folder that is nobody's ends it.
        with pytest.raises(SystemExit) as end:
            job_child.enter_job({"PROFZOO_JOB": str(tmp_path)})
        assert end.value.code == 1
    finally:
        os.umask(before)


def test_python_in_path_will_do_where_it_is_the_interpreter_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "python3").write_text("#!/bin/sh\n")
    (own / "python3").chmod(0o755)
    (other / "python").symlink_to(own / "python3")
    monkeypatch.setattr(sys, "executable", str(own / "python3"))
    monkeypatch.setenv("PATH", str(other))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    inherited_paths.use_own_python()
    assert os.environ["PATH"] == str(other)
    # In a virtual environment the same file by another path finds other packages.
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ConfigError, match="run it in a virtual environment"):
        inherited_paths.use_own_python()


def test_modules_of_a_folder_do_not_hide_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    (folder := tmp_path / "mine").mkdir()
    for name in ("net.py", "data.csv", ".hidden", "json.txt"):
        (folder / name).touch()
    (folder / "json").mkdir()
    assert inherited_paths.shield_folder(folder) == folder
    (folder / "profile.py").touch()
    (folder / "json" / "__init__.py").touch()
    place = inherited_paths.shield_folder(folder)
    assert place.parent == here / ".snakemake/profzoo/importable"
    assert sorted(path.name for path in place.iterdir()) == ["data.csv", "json.txt", "net.py"]
    assert (place / "net.py").resolve() == folder / "net.py" and inherited_paths.shield_folder(folder) == place
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}{os.pathsep}/b{os.pathsep}/a")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    inherited_paths.make_importable(str(folder))
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(place), str(here), "/a", "/b"]
    assert os.environ["PYTHONSAFEPATH"] == "1"


def test_a_run_whose_owner_is_gone_gets_a_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(orphan_guard.os, "kill", lambda *words: sent.append(words))
    own = process_tree.process_identity(os.getpid())
    done = orphan_guard.threading.Event()
    done.set()
    orphan_guard._watch(own, os.getppid(), done)
    assert sent == []
    done.clear()
    orphan_guard._watch(own, os.getppid() + 1, done)
    orphan_guard._watch(own.replace(":", ":9", 1), os.getppid(), done)
    assert sent == [(os.getpid(), signal.SIGTERM)] * 2


@pytest.mark.parametrize("given", ["", "x", "1:2:3", "{own}"])
def test_a_run_of_nobodys_is_not_watched(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    own = given == "{own}"
    monkeypatch.setenv(orphan_guard.OWNER, process_tree.process_identity(os.getpid()) if own else given)
    with orphan_guard.watch_parent():
        names = [thread.name for thread in orphan_guard.threading.enumerate()]
    assert ("owner" in names) == own
    monkeypatch.setenv(orphan_guard.OWNER, "")
    orphan_guard.export_owner()
    assert os.environ[orphan_guard.OWNER] == process_tree.process_identity(os.getpid())


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
