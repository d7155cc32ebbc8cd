"""Locks and claims: one run at a time on results, and what others put in a lock's place stays and is named.

And what comes of a file system without locks: a line, and a run that goes on or does not.
"""

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profzoo.collect import profile_ranks, transaction
from profzoo.errors import CollectError, ConfigError
from profzoo.machine import file_locks, gpu_slots, process_tree, scratch_folder
from profzoo.machine.gpu_slots import LockTerms

PROJECT = Path(__file__).parents[2]


PRECIOUS = "precious"


def device(path: Path, mine: Path) -> None:
    try:
        os.mknod(path, 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("takes root, to make a device")


def bound(path: Path, mine: Path) -> None:
    # Of a short name, as its length is bounded.
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "symbolic link": (lambda path, mine: path.symlink_to(mine), "is a symbolic link, .*: remove it"),
    "link to nothing": (lambda path, mine: path.symlink_to(mine.parent / "none"), "is a symbolic link, .*: remove it"),
    "hard link": (lambda path, mine: os.link(mine, path), "is a file with another name, too, .*: remove it"),
    "FIFO": (lambda path, mine: os.mkfifo(path), "is a FIFO, .*: remove it"),
    "folder": (lambda path, mine: path.mkdir(), "is a folder, .*: remove it"),
    "socket": (bound, "is a socket, .*: remove it"),
    "device": (device, "is a device, .*: remove it"),
    "text": (lambda path, mine: path.write_text(PRECIOUS), "has content that profzoo did not write: move it away"),
    "JSON": (lambda path, mine: path.write_text('{"mine": 1}'), "has content that profzoo did not write"),
}


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A file of somebody's, which must stay as it is."""
    path = tmp_path / "mine.txt"
    path.write_text(PRECIOUS)
    yield path
    assert path.read_text() == PRECIOUS and not (tmp_path / "none").exists()


def known(path: Path) -> tuple[int, int, str]:
    found = path.lstat()
    return found.st_mode, found.st_ino, path.read_text() if path.is_file() else ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_place_of_the_lock_of_results_stays_and_is_named(tmp_path: Path, mine: Path, kind: str) -> None:
    made, said = KINDS[kind]
    (results := tmp_path / "results").mkdir()
    path = results / file_locks.NAME
    made(path, mine)
    before = known(path)
    planned = file_locks.inspect_folder(results)
    with pytest.raises(ConfigError, match=f"cannot be locked for this run: .*{re.escape(str(path))} {said}") as refused:
        file_locks.lock_results(results, planned)
    assert "\n" not in str(refused.value) and "Errno" not in str(refused.value)
    assert known(path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_place_of_a_claim_stays_and_is_named(tmp_path: Path, mine: Path, kind: str) -> None:
    made, said = KINDS[kind]
    job = {"sidecar": tmp_path / "s.json"}
    home = transaction.private_home(job["sidecar"])
    home.mkdir()
    path = home / transaction.CLAIM
    made(path, mine)
    before = known(path)
    with pytest.raises(OSError, match=f"{re.escape(str(path))} {said}"), transaction.begin(job):
        pytest.fail("it began")
    assert known(path) == before


@pytest.mark.parametrize(
    "text", ["", "\0" * 9, "{", '{"ru', '{"run": "a', '{"host": "h", "pi\0\0\0', '{"host": "h", "pid": 1}']
)
def test_what_a_run_left_that_was_killed_or_lost_its_power_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    os.close(file_locks.acquire_lock(tmp_path / "lock", wait=False))


def test_a_folder_that_a_claim_points_to_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called as profzoo calls its links: only a link to that job's files is one."""
    job = {"sidecar": tmp_path / "s.json"}
    home, run = transaction.private_home(job["sidecar"]), "0" * 12
    links = {name: tmp_path / f"profzoo-{name}" for name in ("file", "other", "folder", "own")}
    for link in links.values():
        link.mkdir()
    (links["file"] / "made").write_text(PRECIOUS)
    (links["other"] / "made").symlink_to(links["file"])
    (links["folder"] / "made").mkdir()
    (links["own"] / "made").symlink_to(home / run)
    (tmp_path / "profzoo-link").symlink_to(links["own"])
    for name in ("file", "other", "folder", "link", "own"):
        home.mkdir()
        claim = {"run": run, "host": socket.gethostname(), "link": str(tmp_path / f"profzoo-{name}")}
        (home / transaction.CLAIM).write_text(json.dumps(claim))
        with transaction.begin(job):
            assert (links["own"] / "made").is_symlink() == (name != "own")
    assert (links["file"] / "made").read_text() == PRECIOUS and (links["other"] / "made").is_symlink()
    assert (links["folder"] / "made").is_dir() and not links["own"].exists()


def test_a_link_in_the_place_of_a_jobs_folder_is_no_way_into_another(tmp_path: Path) -> None:
    (own := tmp_path / "mine").mkdir()
    (own / "0123456789ab").mkdir()
    (own / "0123456789ab" / "mine.txt").write_text(PRECIOUS)
    job = {"sidecar": tmp_path / "s.json"}
    home = transaction.private_home(job["sidecar"])
    home.symlink_to(own)
    said = r"\.s\.making is a symbolic link, where a job needs a folder of its own"
    with pytest.raises(CollectError, match=said), transaction.begin(job):
        pytest.fail("it began")
    home.unlink()
    # Put there while a job runs.
    with pytest.raises(CollectError, match="is a symbolic link"), transaction.begin(job) as work:
        home.rename(tmp_path / "moved")
        home.symlink_to(own)
        work.check()
    assert [path.name for path in own.iterdir()] == ["0123456789ab"]
    assert (own / "0123456789ab" / "mine.txt").read_text() == PRECIOUS


def test_what_a_user_has_beside_a_claim_stays(tmp_path: Path) -> None:
    job = {"sidecar": tmp_path / "s.json"}
    home = transaction.private_home(job["sidecar"])
    for name in ("mine", "0123456789ab"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(PRECIOUS)
    (tmp_path / "folder").mkdir()
    (home / "ba9876543210").symlink_to(tmp_path / "folder")
    with transaction.begin(job) as work:
        assert {path.name for path in home.iterdir()} == {"mine", "ba9876543210", transaction.CLAIM, work.run}
    assert {path.name for path in home.iterdir()} == {"mine", "ba9876543210"}
    assert (home / "mine" / "file").read_text() == PRECIOUS


def test_a_run_that_ends_leaves_the_lock_of_another(tmp_path: Path) -> None:
    """As where somebody has removed its own meanwhile."""
    path = tmp_path / file_locks.NAME
    mine = file_locks.acquire_lock(path, wait=False)
    path.unlink()
    with file_locks.hold_lock(path):
        file_locks._release(tmp_path, mine, os.getpid())
        assert path.exists()


@pytest.mark.parametrize("text", ["[]", '"x"', '{"pid": 1}', "\0", ""])
def test_a_lock_that_says_nothing_of_its_holder_is_held_all_the_same(tmp_path: Path, text: str) -> None:
    with file_locks.hold_lock(tmp_path / file_locks.NAME) as descriptor:
        file_locks.replace_text(descriptor, text)
        assert file_locks.inspect_folder(tmp_path).holder == "which has just started"


def test_what_a_lock_says_is_shown_without_controls(tmp_path: Path) -> None:
    with file_locks.hold_lock(tmp_path / file_locks.NAME) as descriptor:
        said = {"host": "h\x1b[2J\n", "pid": 7, "folder": "/f", "since": "x" * 9999}
        file_locks.replace_text(descriptor, json.dumps(said))
        holder = file_locks.inspect_folder(tmp_path).holder
    assert holder and holder.startswith("process 7 on h[2J in /f, since xxx") and len(holder) < 1100


# -- File systems without locks ----------------------------------------------------------------------------------------


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def lockless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a file system without locks says."""

    def flock(file: object, how: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)
    return os.strerror(request.param)


def test_results_without_locks_are_used_and_said_to_be_unprotected(tmp_path: Path, lockless: str) -> None:
    said = file_locks.lock_results(tmp_path, file_locks.inspect_folder(tmp_path))
    assert said == (
        f"{tmp_path} is on a file system without locks ({lockless}), so that nothing keeps two runs from using it at "
        "once: start one at a time there"
    )
    with transaction.begin({"sidecar": tmp_path / "s.json"}) as work:
        work.private["sidecar"].write_text("new")
        work.commit()
    assert (tmp_path / "s.json").read_text() == "new"


def test_a_gpu_without_locks_is_refused_in_a_line(tmp_path: Path, lockless: str) -> None:
    """Two jobs on it would spoil each other's numbers."""
    said = re.escape(f"its file system has no locks ({lockless}); set locks.folder to a local one")
    said = rf"GPU-a\.lock: the GPU cannot be locked: {said}"
    with pytest.raises(CollectError, match=said), gpu_slots.hold_gpus(1, ["GPU-a"], print, LockTerms(tmp_path)):
        pytest.fail("it was taken")


def test_temporary_files_do_without_locks(tmp_path: Path, lockless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_folder, "_places", lambda: [str(tmp_path)])
    folder, held = scratch_folder.make_scratch()
    assert (
        folder.is_dir()
        and scratch_folder.claim_abandoned(folder) is None
        and scratch_folder.sweep_abandoned() == []
        and folder.is_dir()
    )
    for descriptor in held:
        os.close(descriptor)
    gate = gpu_slots.TurnGate(folder)
    with pytest.raises(
        CollectError, match=rf"a file system without locks \({lockless}\), .* or locks\.overlap to false"
    ):
        gate.variables  # noqa: B018
    gate.close()
    with (
        pytest.raises(CollectError, match="without locks"),
        gpu_slots.offer_gpu("GPU-a", folder, print, LockTerms(tmp_path)),
    ):
        pytest.fail("it waits for nothing")


# -- Folders of ranks --------------------------------------------------------------------------------------------------


def test_a_rank_has_a_folder_that_nobody_could_make_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "profzoo-rank-0").symlink_to(tmp_path / "mine")
    gone = tmp_path / "profzoo-rank-3-gone"
    gone.mkdir()
    (gone / profile_ranks.PROCESS).write_text(
        f"{os.getpid()}:1:{process_tree.process_identity(os.getpid()).split(':')[2]}"
    )
    # Of another machine or container, which cannot be told; and one whose process has only begun.
    for name in ("elsewhere", "begun"):
        (tmp_path / f"profzoo-rank-3-{name}").mkdir()
    (tmp_path / "profzoo-rank-3-elsewhere" / profile_ranks.PROCESS).write_text("1:1:1")
    first, second = Path(profile_ranks.rank_folder(0)), Path(profile_ranks.rank_folder(0))
    assert first != second and first.is_dir() and first.stat().st_mode & 0o777 == 0o700
    assert first.parent == tmp_path and not list((tmp_path / "mine").iterdir())
    assert not gone.exists() and (tmp_path / "profzoo-rank-3-elsewhere").is_dir()
    assert (tmp_path / "profzoo-rank-3-begun").is_dir()


def test_a_ranks_folder_goes_with_its_job_where_that_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(scratch_folder.JOB, str(tmp_path))
    assert profile_ranks.rank_folder(1) == profile_ranks.rank_folder(1) == str(tmp_path / "r1")


def test_the_folder_of_a_rank_that_has_ended_goes_with_the_next(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['TMPDIR'], flush=True); sys.stdin.read()"
    words = [sys.executable, "-m", "profzoo.collect.profile_ranks", "first", "--", sys.executable, "-c", code]
    seen = {**os.environ, "TMPDIR": str(tmp_path), "RANK": "1"}

    def begun() -> tuple[subprocess.Popen[str], Path]:
        one = subprocess.Popen(words, cwd=PROJECT, env=seen, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert one.stdout
        return one, Path(one.stdout.readline().strip())

    first, folder = begun()
    other, beside = begun()
    assert folder.is_dir() and beside.is_dir() and folder != beside
    first.communicate()
    third, _ = begun()
    assert not folder.exists() and beside.is_dir()
    for one in (other, third):
        one.communicate()


HOLD = """
import sys
from pathlib import Path
from profzoo.machine import file_locks
results = Path(sys.argv[1])
file_locks.lock_results(results, file_locks.inspect_folder(results))
print("held", flush=True)
sys.stdin.read()
"""


def started(code: str, *words: object, **more: Any) -> subprocess.Popen[str]:
    """A process of that code, once it has said that it holds."""
    command = [sys.executable, "-c", code, *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=PROJECT, text=True, **pipes, **more)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def holder(results: Path) -> subprocess.Popen[str]:
    """A process that holds the folder until its input ends."""
    return started(HOLD, results)


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    planned = file_locks.inspect_folder(results)
    first = holder(results)
    said = f"process {first.pid} on {os.uname().nodename} in {PROJECT}, since "
    # Whether it was there when this was planned, or came then.
    for seen in (file_locks.inspect_folder(results), file_locks.FolderState(None, results.stat().st_mtime_ns)):
        with pytest.raises(ConfigError, match=f"is in use by another run, {said}.*wait until it has ended") as refused:
            file_locks.lock_results(results, seen)
        assert "\n" not in str(refused.value)
    first.communicate()
    assert first.returncode == 0 and not results.exists()
    assert planned == file_locks.inspect_folder(results) == file_locks.FolderState(None, None)


def test_what_was_planned_while_another_ran_is_planned_again(tmp_path: Path) -> None:
    (tmp_path / "own.csv").touch()
    planned = file_locks.inspect_folder(tmp_path)
    holder(tmp_path).communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]
    with pytest.raises(ConfigError, match=r"another run has used .* while this one was planned: run it again"):
        file_locks.lock_results(tmp_path, planned)


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    killed = holder(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (tmp_path / file_locks.NAME).exists()
    assert holder(tmp_path).communicate() == ("", None) and not tmp_path.exists()


def test_programs_that_the_holder_starts_do_not_hold_it_on(tmp_path: Path) -> None:
    script = HOLD.replace('print("held"', 'import subprocess; subprocess.Popen(["sleep", "60"]); print("held"')
    process = started(script, tmp_path, start_new_session=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    holder(tmp_path).communicate()
    os.killpg(process.pid, signal.SIGKILL)


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(ConfigError, match="results cannot be locked for this run: "):
        file_locks.lock_results(tmp_path / "results", file_locks.inspect_folder(tmp_path / "results"))


def test_a_fork_of_the_holder_that_ends_leaves_the_lock(tmp_path: Path) -> None:
    """With all that Python does at its end, as workers that were forked do."""
    code = HOLD.replace("sys.stdin.read()", "import os\nif not os.fork():\n    sys.exit()\nos.wait()\nprint('waited', flush=True)\n"
                        "sys.stdin.read()")  # fmt: skip
    results = tmp_path / "results"
    process = started(code, results)
    assert process.stdout and process.stdout.readline() == "waited\n"
    assert (results / file_locks.NAME).exists() and file_locks.inspect_folder(results).holder
    process.communicate()
    assert not results.exists()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, left = tmp_path / "lock", file_locks.lock_descriptor, [True]

    def lock(descriptor: int, wait: bool) -> None:
        real(descriptor, wait)
        if left and left.pop():
            path.unlink()

    monkeypatch.setattr(file_locks, "lock_descriptor", lock)
    with file_locks.hold_lock(path) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        with pytest.raises(BlockingIOError):
            file_locks.acquire_lock(path, wait=False)
        file_locks.replace_text(descriptor, "longer than this")
        file_locks.replace_text(descriptor, "short")
        assert file_locks.read_text(descriptor) == path.read_text() == "short"
