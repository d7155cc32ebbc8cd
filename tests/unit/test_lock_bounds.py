"""Locks at their bounds: exactly how long they wait, whose file they trust, what others may write in it, who lets go."""

import fcntl
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.errors import CollectError
from profzoo.machine import file_locks, gpu_slots, gpu_turns, results_lock
from profzoo.machine.gpu_slots import LockTerms
from tests.unit.test_gpu_slots import PROJECT, job

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
def test_a_job_waits_as_long_as_it_may_and_no_longer(
    taken: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, late: bool
) -> None:
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


@pytest.mark.parametrize(("waited_s", "told"), [(59.0, 0), (60.0, 1), (75.0, 1)])
def test_who_waits_for_a_minute_is_told_for_whom(
    taken: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, told: int
) -> None:
    (own := taken / "own").mkdir()
    lines: list[str] = []
    (own / gpu_turns.WANTED).touch()
    looked = threading.Event()

    def monotonic() -> float:
        looked.set() if next(readings) > 2 else None
        return NOW_S + (waited_s if looked.is_set() else 0.0)

    readings = itertools.count()
    monkeypatch.setattr(gpu_slots, "time", SimpleNamespace(monotonic=monotonic))
    with gpu_turns.offer_gpu("GPU-a", own, lines.append, LockTerms(taken)) as turn:
        assert looked.wait(30)
        # It looks fifty times a second.
        threading.Event().wait(0.3)
        assert turn.words == []
    assert len(lines) == told


def replaced_as_it_is_locked(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have somebody remove the lock's file, and make another, after it was opened and before it is locked."""
    real, left = gpu_slots._flocked, [True]

    def flocked(descriptor: int) -> bool:
        if left and left.pop():
            path.unlink()
            path.touch()
        return real(descriptor)

    monkeypatch.setattr(gpu_slots, "_flocked", flocked)


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


@pytest.mark.parametrize(
    ("made", "why"),
    [(hard_link, "a file with another name, too"), (symbolic_link, "a symbolic link"), (pipe, "a FIFO")],
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


FORKS = """
import os, sys
from pathlib import Path
from profzoo.machine import results_lock
results = Path(sys.argv[1])
results_lock.lock_results(results, results_lock.inspect_folder(results))
child = os.fork()
if not child:
    # Ends as Python ends, with all that is registered for that.
    sys.exit()
os.waitpid(child, 0)
print(results_lock.inspect_folder(results).holder, flush=True)
sys.stdin.read()
"""


def test_a_process_that_the_holder_forked_does_not_let_go_of_the_results(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path)], cwd=PROJECT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout and f"process {process.pid} on " in process.stdout.readline()
    assert (tmp_path / results_lock.NAME).exists()
    process.communicate()
    assert process.returncode == 0 and not tmp_path.exists()


def test_a_lock_whose_file_was_removed_while_it_was_waited_for_is_taken_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
