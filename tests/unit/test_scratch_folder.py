"""A job's folder of temporary files, and its process within: who ends and goes with whom."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.machine import job_child, process_tree, scratch_folder
from tests.faults.jobs import wait_for_ends

PROJECT = Path(__file__).parents[2]


# Folders.


@pytest.mark.parametrize(("length", "short"), [(50, False), (51, True)])
def test_a_folder_with_a_long_name_is_not_taken(monkeypatch: pytest.MonkeyPatch, length: int, short: bool) -> None:
    given = "/" + "x" * (length - 1)
    monkeypatch.setattr(scratch_folder.tempfile, "gettempdir", lambda: given)
    assert scratch_folder._places() == (["/tmp", given] if short else [given])


@pytest.mark.parametrize(
    ("mode", "taken"), [(0o700, True), (0o755, True), (0o720, False), (0o702, False), (0o770, False)]
)
def test_compiled_code_is_the_users_own(
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


def test_who_depends_on_a_folder_ends_with_it_and_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    wait_for_ends([int(child)], 5)


def test_a_pipe_that_nobody_holds_is_not_waited_for(tmp_path: Path) -> None:
    assert not scratch_folder.die_with_folder(tmp_path)
    os.mkfifo(tmp_path / scratch_folder.PIPE)
    code = "import sys; from pathlib import Path; from profzoo.machine import scratch_folder; print(scratch_folder.die_with_folder(Path(sys.argv[1])))"
    words = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=20, start_new_session=True)
    assert said.stdout == "False\n"


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


def test_a_run_whose_owner_is_gone_gets_a_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(job_child.os, "kill", lambda *words: sent.append(words))
    own = process_tree.process_identity(os.getpid())
    done = job_child.threading.Event()
    done.set()
    job_child._watch(own, os.getppid(), done)
    assert sent == []
    done.clear()
    job_child._watch(own, os.getppid() + 1, done)
    job_child._watch(own.replace(":", ":9", 1), os.getppid(), done)
    assert sent == [(os.getpid(), signal.SIGTERM)] * 2


@pytest.mark.parametrize("given", ["", "x", "1:2:3", "{own}"])
def test_a_run_of_nobodys_is_not_watched(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    own = given == "{own}"
    monkeypatch.setenv(job_child.OWNER, process_tree.process_identity(os.getpid()) if own else given)
    with job_child.watch_parent():
        names = [thread.name for thread in job_child.threading.enumerate()]
    assert ("owner" in names) == own
    monkeypatch.setenv(job_child.OWNER, "")
    job_child.export_owner()
    assert os.environ[job_child.OWNER] == process_tree.process_identity(os.getpid())
