"""gpu_slots: no two jobs share a GPU, a crashed job's is free, and what is given from outside is respected."""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from profzoo.errors import CollectError
from profzoo.machine import gpu_slots
from profzoo.machine.gpu_slots import LockTerms

PROJECT = Path(__file__).parents[2]
FOUND = ["GPU-a", "GPU-b", "GPU-c"]
# Takes GPUs, notes when it had them, and ends when told to.
JOB = """
import sys, time
from pathlib import Path
from profzoo.machine import gpu_slots
folder, count, seconds, words = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4].split(",")
terms = gpu_slots.LockTerms(folder, what="the test's")
with gpu_slots.hold_gpus(count, words, lambda line: print(line, flush=True), terms) as mine:
    began = time.monotonic()
    print("has", *mine.words, flush=True)
    time.sleep(seconds)
    print("held", *mine.words, began, time.monotonic(), flush=True)
"""


def job(folder: Path, count: int = 1, seconds: float = 60, words: str = "GPU-a") -> subprocess.Popen[str]:
    """A process that holds GPUs."""
    command = [sys.executable, "-c", JOB, str(folder), str(count), str(seconds), words]
    return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds GPU-a."""
    process = job(tmp_path)
    assert process.stdout.readline() == "has GPU-a\n"
    yield process
    process.kill()
    process.communicate()


def take(folder: Path, count: int = 1, words: list[str] = FOUND) -> list[str]:
    """What a job would get; not waiting."""

    def refuse(line: str) -> None:
        raise TimeoutError(line)

    with gpu_slots.hold_gpus(count, words, refuse, LockTerms(folder)) as mine:
        return mine.words


def test_a_gpu_that_another_process_holds_is_passed_over(held: subprocess.Popen, tmp_path: Path) -> None:
    assert take(tmp_path) == ["GPU-b"]
    assert take(tmp_path, 2) == ["GPU-b", "GPU-c"]
    with pytest.raises(TimeoutError, match="waiting for 3 of 3"):
        take(tmp_path, 3)


def test_a_crashed_jobs_gpu_is_free(held: subprocess.Popen, tmp_path: Path) -> None:
    held.kill()
    held.wait()
    assert take(tmp_path) == ["GPU-a"]


def test_one_process_never_gets_a_gpu_twice(tmp_path: Path) -> None:
    with ExitStack() as stack:
        got = [stack.enter_context(gpu_slots.hold_gpus(1, FOUND, print, LockTerms(tmp_path))) for _ in FOUND]
        assert sorted(word for one in got for word in one.words) == FOUND
        with pytest.raises(TimeoutError):
            take(tmp_path)
    assert take(tmp_path, 3) == FOUND


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 GPUs wanted, 3 there"):
        take(tmp_path, 4)


def test_many_jobs_at_once_share_none(tmp_path: Path) -> None:
    jobs = [job(tmp_path, count, 0.3, "GPU-a,GPU-b") for count in (1, 2, 1, 2, 1, 1)]
    printed = [process.communicate(timeout=60)[0] for process in jobs]
    spans = []
    for text in printed:
        _, *words = text.splitlines()[-1].split()
        spans += [(word, float(words[-2]), float(words[-1])) for word in words[:-2]]
    assert len(spans) == 8 and any("waiting for" in text for text in printed)
    for word in ("GPU-a", "GPU-b"):
        times = sorted((began, ended) for one, began, ended in spans if one == word)
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(times))


def test_other_users_may_lock_the_same_files(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        take(tmp_path / "locks")
    finally:
        os.umask(mask)
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "locks" / "GPU-a.lock").stat().st_mode & 0o777 == 0o666


def test_waiting_ends_when_the_gpu_is_free(tmp_path: Path) -> None:
    process = job(tmp_path, seconds=0.5)
    assert process.stdout.readline() == "has GPU-a\n"
    began, lines = time.monotonic(), []
    with gpu_slots.hold_gpus(1, ["GPU-a"], lines.append, LockTerms(tmp_path)) as mine:
        assert mine.words == ["GPU-a"] and time.monotonic() - began > 0.2 and len(lines) == 1
    process.communicate()


@pytest.mark.parametrize("kind", ["hard link", "folder", "pipe"])
def test_a_file_that_somebody_else_reads_is_not_written_into(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "GPU-a.lock", tmp_path / "other"
    other.write_text("of somebody")
    {"hard link": lambda: os.link(other, path), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(CollectError, match="the GPU cannot be locked"):
        take(tmp_path, words=["GPU-a"])
    assert other.read_text() == "of somebody"


def test_a_lock_that_was_replaced_is_not_the_one_that_others_hold(tmp_path: Path) -> None:
    path = tmp_path / "GPU-a.lock"
    with gpu_slots.open_slot("GPU-a", LockTerms(tmp_path)) as file:
        path.unlink()
        path.touch()
        with pytest.raises(CollectError, match="was removed while this job waited"):
            file.hold(lambda line: None, threading.Event(), 0.01)


def test_a_gpu_whose_lock_is_replaced_meanwhile_is_taken_by_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, as by who cleans the folder."""
    path, real = tmp_path / "GPU-a.lock", gpu_slots._flocked

    def replaced(descriptor: int) -> bool:
        locked = real(descriptor)
        if not (tmp_path / "done").exists():
            (tmp_path / "done").touch()
            path.unlink()
            path.touch()
        return locked

    monkeypatch.setattr(gpu_slots, "_flocked", replaced)
    assert take(tmp_path, count=1, words=["GPU-a", "GPU-b"]) == ["GPU-b"]
