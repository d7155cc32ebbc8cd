"""Whatever of a job is killed, all of it ends within seconds, the GPU is free only then, and nothing is left."""

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profzoo.machine import gpu_slots, process_tree, scratch_folder
from tests import slow
from tests.faults import family
from tests.faults.family import Family

Begin = Callable[..., Family]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begins jobs in the test's folder, of which nothing is left after it."""
    jobs: list[Family] = []

    def begun(**given: object) -> Family:
        jobs.append(family.begun(tmp_path, **given))  # type: ignore[arg-type]
        return jobs[-1]

    yield begun
    for job in jobs:
        job.end()


def clean(folder: Path) -> bool:
    """Whether no job's temporary files are left."""
    return not list((folder / "tmp").iterdir())


@pytest.mark.parametrize("victim", slow.first(["wrapper", "supervisor", "shell", "owner"]))
def test_a_kill_of_what_is_around_a_program_ends_it(tmp_path: Path, begin: Begin, victim: str) -> None:
    job = begin(owned=True)
    ids = job.ids()
    assert all(map(family.alive, ids.values())) and not family.free(tmp_path)
    os.kill(ids[victim], signal.SIGKILL)
    # snakemake lives on where its job is killed, and so does nobody else.
    family.all_end(tmp_path, {name: one for name, one in ids.items() if name not in ("owner", "shell")})
    family.until(lambda: clean(tmp_path), 1)
    assert family.free(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["program", "worker", "agent"])
def test_a_kill_within_a_program_leaves_nothing_once_that_has_ended(tmp_path: Path, begin: Begin, victim: str) -> None:
    job = begin(stay=1.5)
    ids = job.ids()
    os.kill(ids[victim], signal.SIGKILL)
    assert job.outer.wait(timeout=1.5 + family.SECONDS) == (0 if victim != "program" else 256 - signal.SIGKILL)
    assert not any(map(family.alive, ids.values())) and family.free(tmp_path) and clean(tmp_path)


@pytest.mark.parametrize("number", slow.first([signal.SIGTERM, signal.SIGHUP]))
def test_a_closed_terminal_and_a_cancelled_job_end_all(tmp_path: Path, begin: Begin, number: signal.Signals) -> None:
    job = begin()
    ids = job.ids()
    job.outer.send_signal(number)
    family.until(lambda: job.outer.poll() is not None, family.SECONDS)
    assert job.outer.returncode == 128 + number
    assert not any(map(family.alive, ids.values())) and family.free(tmp_path) and clean(tmp_path)


@pytest.mark.slow
def test_a_kill_of_both_ends_the_program_and_the_next_job_ends_the_rest(tmp_path: Path, begin: Begin) -> None:
    job = begin()
    ids = job.ids()
    # Neither sees the other end.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for name in ("supervisor", "wrapper"):
            os.kill(ids[name], number)
    family.until(lambda: not (family.alive(ids["program"]) or family.alive(ids["worker"])), 1)
    # What had left the program's group has the GPU's lock still.
    assert family.alive(ids["agent"]) and not family.free(tmp_path)
    ended = family.next_job(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "ended 1 process(es) of a job that was killed" in ended.stderr
    assert not family.alive(ids["agent"]) and clean(tmp_path)


def test_a_job_beside_is_no_dead_one(tmp_path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    job = begin()
    monkeypatch.setattr("tempfile.tempdir", str((tmp_path / "tmp").resolve()))
    assert scratch_folder.sweep_abandoned() == []
    assert all(map(family.alive, job.ids().values())) and job.scratch().is_dir()


@pytest.mark.slow
def test_a_program_that_outlives_its_job_from_the_start_ends(tmp_path: Path) -> None:
    """Both were killed before it came to depend on them."""
    folder = tmp_path / "profzoo-job-x"
    folder.mkdir()
    os.mkfifo(folder / scratch_folder.PIPE)
    code = "from profzoo.machine import job_child; job_child.enter_job(); print('went on')"
    given = {**os.environ, scratch_folder.JOB: str(folder)}
    for _ in range(2):
        words = [sys.executable, "-c", code]
        ran = subprocess.run(words, cwd=family.PROJECT, env=given, capture_output=True, text=True, check=False)
        assert ran.returncode == 1 and "went on" not in ran.stdout and "is nobody's" in ran.stderr
        # And without its folder.
        given[scratch_folder.JOB] = str(tmp_path / "none")


def test_a_job_of_which_time_is_over_says_so_in_one_line(tmp_path: Path, begin: Begin) -> None:
    job = begin(time_s=1.0)
    ids = job.ids()
    began = time.monotonic()
    assert job.outer.wait(timeout=1 + family.SECONDS) == 124
    assert time.monotonic() - began < 1 + family.SECONDS
    line = "profzoo: time took longer than 1 s and was ended: see why it hangs, or raise time.time_limit (null: none)"
    assert job.log().endswith(f"\n{line}\n")
    assert not any(map(family.alive, ids.values())) and family.free(tmp_path) and clean(tmp_path)


def test_the_lock_names_who_holds_it(tmp_path: Path, begin: Begin) -> None:
    job, lines = begin(), list[str]()
    ids = job.ids()

    def told(line: str) -> None:
        lines.append(line)
        raise BlockingIOError

    with (
        pytest.raises(BlockingIOError),
        gpu_slots.hold_gpus(1, [family.GPU], told, gpu_slots.LockTerms(tmp_path / "locks")),
    ):
        pass
    user = subprocess.check_output(["id", "-un"], text=True).strip()
    assert f"(GPU-a: process {ids['wrapper']} of {user}, time of lstm train in {tmp_path})" in lines[0]


def test_the_umask_that_a_profiler_loses_is_the_programs_again(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("")
    (tmp_path / "late.py").write_text("")
    code = "import early; from profzoo.machine import job_child; job_child.enter_job(); import late"
    lost = ["sh", "-c", f"umask 0; exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"]
    words = [sys.executable, "-c", family.WRAPPER, str(tmp_path), json.dumps(family.JOB), *lost]
    given = family.environment(tmp_path) | {"PYTHONPATH": f"{family.PROJECT}:{tmp_path}"}
    before = os.umask(0o027)
    try:
        subprocess.run(words, cwd=tmp_path, env=given, check=True)
    finally:
        os.umask(before)
    cache = tmp_path / "__pycache__"
    assert [path.name.partition(".")[0] for path in cache.iterdir()] == ["late"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (cache, *cache.iterdir())] == [0o750, 0o640]


def test_temporary_files_are_where_sockets_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers hang in a folder of a longer path, as they cannot have a socket there."""
    longest = tmp_path / ("x" * 100)
    longest.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(longest))
    folder, kept = scratch_folder.make_scratch()
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            (folder / "pymp-12345678").mkdir()
            bound.bind(str(folder / "pymp-12345678" / "listener-12345678"))
    finally:
        for descriptor in kept:
            os.close(descriptor)
    assert scratch_folder.sweep_abandoned() == [] and not folder.exists()


def test_a_process_is_told_from_later_ones_of_its_number() -> None:
    own = process_tree.process_identity(os.getpid())
    assert (
        own == process_tree.process_identity(os.getpid())
        and own != process_tree.process_identity(os.getppid())
        and not process_tree.process_identity(2**22)
    )
