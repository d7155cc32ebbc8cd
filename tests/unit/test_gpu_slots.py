"""No two jobs share a GPU, a crashed job's is free, and locks wait exactly as long and trust whose file they may."""

import fcntl
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.errors import CollectError
from profzoo.machine import file_locks, gpu_slots
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
    jobs = [job(tmp_path, count, 0.2, "GPU-a,GPU-b") for count in (1, 2, 1, 1)]
    printed = [process.communicate(timeout=60)[0] for process in jobs]
    spans = []
    for text in printed:
        _, *words = text.splitlines()[-1].split()
        spans += [(word, float(words[-2]), float(words[-1])) for word in words[:-2]]
    assert len(spans) == 5 and any("waiting for" in text for text in printed)
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


NOW_S = 1000.0


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Path]:
    """A folder in which another process holds GPU-a."""
    process = job(tmp_path)
    assert process.stdout and process.stdout.readline() == "has GPU-a\n"
    yield tmp_path
    process.kill()
    process.communicate()


def clock(monkeypatch: pytest.MonkeyPatch, *moments_s: float) -> list[float]:
    """Have gpu_slots read these moments, the last from then on; pauses, which it would sleep, are returned."""
    reading, slept = iter([*moments_s[:-1], *itertools.repeat(moments_s[-1], 100)]), list[float]()
    own = SimpleNamespace(monotonic=lambda: NOW_S + next(reading), sleep=slept.append)
    monkeypatch.setattr(gpu_slots, "time", own)
    return slept


@pytest.mark.parametrize(("waited_s", "late"), [(4.0, False), (5.0, False), (5.5, True)])
def test_a_job_waits_while_it_may(taken: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, late: bool) -> None:
    """Of a wait of 5 s, the fifth second is part."""
    terms, over = LockTerms(taken, wait_s=5.0), threading.Event()
    over.set()
    with gpu_slots.open_slot("GPU-a", terms) as file:
        clock(monkeypatch, 0.0, waited_s)
        if late:
            with pytest.raises(CollectError, match=r"not free within 5 s \(locks.wait\)"):
                file.hold(print, over, 0.0)
        else:
            assert not file.hold(lambda line: None, over, 0.0)
    # The same where several GPUs are chosen from.
    clock(monkeypatch, 0.0, waited_s, 6.0)
    lines: list[str] = []
    with (
        pytest.raises(CollectError, match="not free within 5 s"),
        gpu_slots.hold_gpus(1, ["GPU-a"], lines.append, terms),
    ):
        pass
    assert len(lines) == (not late)


def test_without_a_limit_it_waits_for_ever(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0.0, 1e9)
    over = threading.Event()
    over.set()
    with gpu_slots.open_slot("GPU-a", LockTerms(taken)) as file:
        assert not file.hold(lambda line: None, over, 0.0)


def test_jobs_that_wait_for_each_other_look_at_different_moments(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From half to one and a half of a fifth of a second; alike, two jobs of several GPUs would meet for ever."""
    slept, lines = clock(monkeypatch, *(0.0 for _ in range(60)), 6.0), list[str]()
    with pytest.raises(CollectError), gpu_slots.hold_gpus(1, ["GPU-a"], lines.append, LockTerms(taken, wait_s=5.0)):
        pass
    # However often it looks, it says once that it waits.
    assert len(lines) == 1 and len(slept) == 59 and len(set(slept)) > 50
    assert 0.1 <= min(slept) < 0.13 and 0.27 < max(slept) <= 0.3


@pytest.mark.parametrize(("waited_s", "told"), [(59.9, 0), (60.0, 1)])
def test_who_waits_long_is_told_whom(taken: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, told: int) -> None:
    (own := taken / "own").mkdir()
    lines: list[str] = []
    (own / gpu_slots.WANTED).touch()
    looked = threading.Event()

    def monotonic() -> float:
        looked.set() if next(readings) > 2 else None
        return NOW_S + (waited_s if looked.is_set() else 0.0)

    readings = itertools.count()
    monkeypatch.setattr(gpu_slots, "time", SimpleNamespace(monotonic=monotonic))
    with gpu_slots.offer_gpu("GPU-a", own, lines.append, LockTerms(taken)) as turn:
        assert looked.wait(30)
        # It looks fifty times a second.
        threading.Event().wait(0.15)
        assert turn.words == []
    assert len(lines) == told


def replaced_as_it_is_locked(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have somebody remove the lock's file, and make another, after it was opened and before it is locked."""
    real, left = file_locks.try_lock, [True]

    def flocked(descriptor: int) -> bool:
        if left and left.pop():
            path.unlink()
            path.touch()
        return real(descriptor)

    monkeypatch.setattr(file_locks, "try_lock", flocked)


def test_a_file_that_was_replaced_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "GPU-a.lock"
    path.touch()
    replaced_as_it_is_locked(monkeypatch, path)
    lines: list[str] = []
    with gpu_slots.hold_gpus(1, ["GPU-a"], lines.append, LockTerms(tmp_path)) as mine, path.open() as other:
        # It was held back, and holds what others will lock.
        assert len(lines) == 1 and mine.words == ["GPU-a"]
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def hard_link(path: Path, other: Path) -> None:
    os.link(other, path)


def symbolic_link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def pipe(path: Path, other: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, other: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (hard_link, "a file with another name, too"),
        (symbolic_link, "a symbolic link"),
        (pipe, "a FIFO"),
        (folder, "a folder"),
    ],
)
def test_a_lock_is_no_way_into_another_file(tmp_path: Path, made: Callable[[Path, Path], None], why: str) -> None:
    (other := tmp_path / "somebody's").write_text("precious")
    made(tmp_path / "GPU-a.lock", other)
    said = rf"the GPU cannot be locked: .*GPU-a\.lock is {why}, which .*: remove it, or set locks.folder"
    with pytest.raises(CollectError, match=said), gpu_slots.hold_gpus(1, ["GPU-a"], print, LockTerms(tmp_path)):
        pass
    assert other.read_text() == "precious"


def test_of_what_a_lock_says_a_line_is_read_and_shown_without_controls(taken: Path) -> None:
    path, over = taken / "GPU-a.lock", threading.Event()
    over.set()

    def said(text: str) -> str:
        path.write_text(text)
        lines: list[str] = []
        with gpu_slots.open_slot("GPU-a", LockTerms(taken)) as file:
            assert not file.hold(lines.append, over, 0.0)
        return lines[0].removeprefix("waiting for the GPU, which another job on this machine holds")

    holder = '{{"pid": 7, "user": "ann", "what": "{}"}}'
    assert said(holder.format("ti\\u001b[2Jme")) == " (GPU-a: process 7 of ann, ti[2Jme)"
    # 40 characters beside the word: a thousand in all are read, and one more is none that can be.
    longest = 1000 - len(holder.format(""))
    assert said(holder.format("x" * longest)).endswith("xxx)") and said(holder.format("x" * (longest + 1))) == ""
    assert [said(text) for text in ("", "[]", '{"pid": "a", "user": "b", "what": "c"}', '{"pid": 1}')] == [""] * 4


def test_who_holds_a_lock_now_is_all_that_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "GPU-a.lock").write_text("x" * 500)
    with gpu_slots.hold_gpus(1, ["GPU-a"], print, LockTerms(tmp_path, what="time of lstm")):
        text = (tmp_path / "GPU-a.lock").read_text()
    assert text.startswith(f'{{"pid": {os.getpid()}, "user": ') and text.endswith('"what": "time of lstm"}\n')
    assert "x" * 5 not in text
