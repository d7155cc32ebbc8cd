"""machine/lock_owner: who certainly holds a lock no longer; whatever cannot be known counts as alive."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profzoo.machine import file_locks
from profzoo.machine.file_locks import Owner

PROJECT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from profzoo.machine import file_locks
owner, descriptor = file_locks.start_owner(Path(sys.argv[1]))
print(file_locks.format_owner(owner), flush=True)
sys.stdin.read()
"""
LOCAL = "36 35 98:0 / {0} rw shared:1 - ext4 /dev/sda rw\n"
SHARED = "36 35 98:0 / {0} rw shared:1 - nfs4 server:/export rw\n"


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Owner]]:
    """A process that works in the folder and keeps its file in `owners` there."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "owners")], cwd=tmp_path, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert process.stdout
    owner = file_locks.parse_owner(process.stdout.readline())
    assert owner and owner.process.startswith(f"{process.pid}:")
    yield process, owner
    process.kill()
    process.wait()


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Have a folder be on a file system of that kind, as the kernel would tell."""
    told = folder / "mountinfo"
    told.write_text(text.format(str(folder).replace(" ", r"\040")))
    monkeypatch.setattr(file_locks, "MOUNTS", told)


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


Held = tuple[subprocess.Popen[str], Owner]


def test_an_owner_holds_until_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    process, owner = holder
    monkeypatch.chdir(tmp_path)
    assert not file_locks.is_gone(owner, tmp_path / "owners")
    killed(process)
    assert file_locks.is_gone(owner, tmp_path / "owners")


def test_an_owner_among_hidden_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    """Of another container: the kernel's lock tells, and nothing else may."""
    process, owner = holder
    monkeypatch.chdir(tmp_path)
    hidden = replace(owner, process=f"{2**22 + 1}:5:1")
    assert not file_locks.is_gone(hidden, tmp_path / "owners")
    killed(process)
    assert file_locks.is_gone(hidden, tmp_path / "owners")
    (tmp_path / "owners" / owner.file).unlink()
    assert not file_locks.is_gone(hidden, tmp_path / "owners")
    # Where processes are the same ones, they tell.
    assert file_locks.is_gone(owner, tmp_path / "owners")


def test_without_locks_processes_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    process, owner = holder
    monkeypatch.chdir(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    other_start = replace(owner, process=":".join([str(process.pid), "1", owner.process.split(":")[2]]))
    assert not file_locks.is_gone(owner, tmp_path / "owners")
    # Its number is another's by now.
    assert file_locks.is_gone(other_start, tmp_path / "owners")
    assert not file_locks.is_gone(replace(owner, process=f"{2**22 + 1}:5:1"), tmp_path / "owners")
    killed(process)
    assert file_locks.is_gone(owner, tmp_path / "owners")


def test_a_copy_of_a_folder_is_held_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    owner = holder[1]
    copied = tmp_path / "copy"
    (copied / "owners").mkdir(parents=True)
    (copied / "owners" / owner.file).write_bytes((tmp_path / "owners" / owner.file).read_bytes())
    monkeypatch.chdir(copied)
    assert file_locks.is_gone(owner, copied / "owners")
    # A link leads nowhere that is looked at.
    (copied / "owners" / owner.file).unlink()
    (copied / "owners" / owner.file).symlink_to(tmp_path / "owners" / owner.file)
    assert not file_locks.is_gone(owner, copied / "owners")


def test_a_folder_that_was_moved_meanwhile_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (old := tmp_path / "old").mkdir()
    monkeypatch.chdir(old)
    owner, descriptor = file_locks.start_owner(old / "owners")
    old.rename(tmp_path / "new")
    assert not file_locks.is_gone(owner, tmp_path / "new" / "owners")
    os.close(descriptor)


@pytest.mark.parametrize("folder", ["plain", "with a space"])
def test_an_owner_on_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held, folder: str) -> None:
    """On a shared file system it may live; a folder of this machine's own disk was copied from there."""
    (mine := tmp_path / folder).mkdir()
    process, owner = holder
    killed(process)
    elsewhere = replace(owner, host="elsewhere", boot="another")
    mounted(monkeypatch, mine, SHARED)
    assert not file_locks.is_gone(elsewhere, mine / "owners")
    assert not file_locks.is_gone(replace(elsewhere, host=owner.host, machine=""), mine / "owners")
    # Another machine of that name, and this one, which has begun anew.
    assert not file_locks.is_gone(replace(elsewhere, host=owner.host, machine="another"), mine / "owners")
    assert file_locks.is_gone(replace(owner, machine=owner.machine or "m", boot="earlier"), mine / "owners") == bool(
        owner.machine
    )
    mounted(monkeypatch, mine, LOCAL)
    assert file_locks.is_gone(elsewhere, mine / "owners")
    # The file system is the one that is mounted last, and deepest.
    mounted(monkeypatch, mine, LOCAL + SHARED)
    assert not file_locks.is_gone(elsewhere, mine / "owners")
    mounted(monkeypatch, mine, SHARED + LOCAL.replace("{0}", "/"))
    assert not file_locks.is_gone(elsewhere, mine / "owners")
    monkeypatch.setattr(file_locks, "MOUNTS", tmp_path / "none")
    assert not file_locks.is_gone(elsewhere, mine / "owners")


def test_a_lock_that_another_host_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    mounted(monkeypatch, tmp_path, LOCAL)
    owner = replace(holder[1], boot="another")
    assert not file_locks.is_gone(owner, tmp_path / "owners")
    killed(holder[0])
    assert file_locks.is_gone(owner, tmp_path / "owners")


def test_a_kernel_that_does_not_tell_its_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: Held) -> None:
    """Then the host's name is all that tells: what is on this one is asked for its locks and processes."""
    process, owner = holder
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file_locks, "BOOT", tmp_path / "none")
    mounted(monkeypatch, tmp_path, SHARED)
    (tmp_path / "owners" / owner.file).unlink()
    unknown = replace(owner, boot="")
    assert not file_locks.is_gone(unknown, tmp_path / "owners")
    killed(process)
    assert file_locks.is_gone(unknown, tmp_path / "owners")
    assert not file_locks.is_gone(replace(unknown, host="elsewhere"), tmp_path / "owners")


def test_what_names_no_owner_is_none(holder: Held) -> None:
    owner = holder[1]
    assert file_locks.parse_owner(file_locks.format_owner(owner)) == owner
    for text in ("", "{}", "[1]", "7", file_locks.format_owner(owner)[:-5]):
        assert file_locks.parse_owner(text) is None
    for changed in ({"file": "../../x"}, {"process": "x"}, {"host": 7}):
        assert file_locks.parse_owner(file_locks.format_owner(replace(owner, **changed))) is None


def test_whether_a_lock_is_free(tmp_path: Path) -> None:
    descriptor = file_locks.acquire_lock(tmp_path / "lock", wait=False)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    assert file_locks.is_unlocked(other) is False
    os.close(descriptor)
    assert file_locks.is_unlocked(other) is True
    os.close(other)
