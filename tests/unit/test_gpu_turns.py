"""machine/gpu_slots: a program starts while another job has the GPU, and touches it only once its own job holds it; locks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from profzoo import run
from profzoo.collect import environment
from profzoo.errors import CollectError, ConfigError
from profzoo.harness.step import measure, step_loop
from profzoo.machine import file_locks, gpu_slots, job_limits, time_slicing
from profzoo.machine.gpu_slots import LockTerms
from tests import slow
from tests.faults.jobs import wait
from tests.unit.test_gpu_slots import PROJECT, job, take

# What a measured program does: starts, waits for its turn, and is at work until it is told to end.
PROGRAM = """
import os, sys, time
from pathlib import Path
from profzoo.machine import gpu_slots
folder = Path(sys.argv[1])
(folder / "started").touch()
gpu_slots.wait_for_turn()
gpu_slots.wait_for_turn()
(folder / "program").write_text(str(os.getpid()))
(folder / "at work").touch()
while not (folder / "end").exists():
    time.sleep(0.01)
"""


# What `python -m profzoo.collect` does around it.
WRAPPER = """
import json, sys
from pathlib import Path
from profzoo import tools
from profzoo.collect import environment as job_environment
folder = Path(sys.argv[1])
job = json.loads(sys.argv[2])
sampled = job["tool"] in tools.that(tools.SAMPLE)
with job_environment.prepare_job(job, ["GPU-a"], sampled=sampled) as (environment, held, guard):
    environment["PYTHONPATH"] = sys.argv[3]
    code = job_environment.run_logged([sys.executable, "-c", sys.argv[4], str(folder)], folder / "log", environment, guard)
    (folder / "told").write_text(json.dumps([held.words, getattr(held, "waited_s", None)]))
sys.exit(code % 256)
"""


CELL = {"model": "lstm", "phase": "train", "device": "auto", "gpus": 1, "nodes": 1}


def begun(folder: Path, tool: str = "time", overlap: bool = True, wait_s: float | None = None) -> subprocess.Popen[str]:
    """A job that starts its program."""
    folder.mkdir()
    told = {"locks": str(folder.parent / "locks"), "overlap": overlap, "wait_s": wait_s}
    described = json.dumps({"tool": tool, "cell": CELL, "environment": []})
    environment = {**os.environ, "TMPDIR": str(folder.parent), job_limits.LIMITS: json.dumps(told)}
    command = [sys.executable, "-c", WRAPPER, str(folder), described, str(PROJECT), PROGRAM]
    return subprocess.Popen(command, cwd=PROJECT, env=environment, text=True, stderr=subprocess.PIPE)


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Another job has the GPU meanwhile."""
    process = job(folder)
    assert process.stdout is not None and process.stdout.readline() == "has GPU-a\n"
    yield
    process.kill()
    process.communicate()


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, str]:
    (folder / "end").touch()
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_a_program_starts_while_another_job_has_the_gpu(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with holding(tmp_path / "locks"):
        mine = begun(own)
        wait((own / "started").exists)
        time.sleep(0.3)
        assert not (own / "at work").exists()
    wait((own / "at work").exists)
    # Now it is this job's, and says so.
    with pytest.raises(TimeoutError, match=r"GPU-a: process \d+ of .*, time of lstm train in"):
        take(tmp_path / "locks", 1, ["GPU-a"])
    code, said = ended(mine, own)
    assert code == 0 and "waiting" not in said
    words, waited = json.loads((own / "told").read_text())
    assert words == ["GPU-a"] and 0.3 < waited < 30 and take(tmp_path / "locks", 1, ["GPU-a"]) == ["GPU-a"]


def test_who_holds_the_gpu_is_told_where_that_takes_long(tmp_path: Path) -> None:
    over, lines = threading.Event(), list[str]()
    with gpu_slots.open_slot("GPU-a", gpu_slots.LockTerms(tmp_path)) as file:
        with holding(tmp_path):
            threading.Timer(0.3, over.set).start()
            assert not file.hold(lines.append, over, 0.01, quiet_s=0.1)
            (line,) = lines
            assert line.startswith("waiting for the GPU, which another job on this machine holds (GPU-a: process")
        assert file.hold(lines.append, threading.Event(), 0.01) and len(lines) == 1


def test_a_lock_that_was_removed_while_waiting_is_none(tmp_path: Path) -> None:
    with gpu_slots.open_slot("GPU-a", gpu_slots.LockTerms(tmp_path)) as file:
        (tmp_path / "GPU-a.lock").unlink()
        with pytest.raises(CollectError, match="was removed while this job waited for the GPU: run snakemake again"):
            file.hold(print, threading.Event(), 0.01)


@pytest.mark.slow
def test_two_programs_that_started_are_never_at_work_together(tmp_path: Path) -> None:
    jobs = {folder: begun(folder) for folder in (tmp_path / "one", tmp_path / "two")}
    wait(lambda: all((folder / "started").exists() for folder in jobs))
    wait(lambda: any((folder / "at work").exists() for folder in jobs))
    time.sleep(0.5)
    first, second = sorted(jobs, key=lambda folder: not (folder / "at work").exists())
    assert (first / "at work").exists() and not (second / "at work").exists()
    assert ended(jobs[first], first)[0] == 0
    wait((second / "at work").exists)
    assert ended(jobs[second], second)[0] == 0


@pytest.mark.parametrize("killed", slow.first(["wrapper", "program"]))
def test_the_gpu_is_free_once_the_last_process_has_ended(tmp_path: Path, killed: str) -> None:
    mine = begun(own := tmp_path / "own")
    wait((own / "at work").exists)
    program = int((own / "program").read_text())
    os.kill(mine.pid if killed == "wrapper" else program, signal.SIGKILL)

    def free() -> bool:
        with suppress(TimeoutError):
            return take(tmp_path / "locks", 1, ["GPU-a"]) == ["GPU-a"]
        return False

    wait(free)
    # It was not before that.
    assert not Path(f"/proc/{program}").exists() or "Z" in Path(f"/proc/{program}/stat").read_text().split()[2]
    mine.communicate(timeout=60)


def test_a_job_that_is_killed_while_its_program_waits_takes_nothing(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with holding(tmp_path / "locks"):
        mine = begun(own)
        wait((own / "started").exists)
        mine.terminate()
        mine.communicate(timeout=60)
    assert take(tmp_path / "locks", 1, ["GPU-a"]) == ["GPU-a"] and not (own / "at work").exists()
    assert not list(tmp_path.glob("profzoo-job-*"))


def test_a_gpu_that_is_not_free_in_time_is_told_to_the_program(tmp_path: Path) -> None:
    with holding(tmp_path / "locks"):
        mine = begun(own := tmp_path / "own", wait_s=0.3)
        mine.communicate(timeout=60)
    assert mine.returncode and not (own / "at work").exists()
    assert "not free within 0.3 s (locks.wait)" in (own / "log").read_text()


@pytest.mark.parametrize(("tool", "overlap"), slow.first([("time", False), ("sample", True), ("peaks", True)]))
def test_other_programs_start_once_the_gpu_is_held(tmp_path: Path, tool: str, overlap: bool) -> None:
    with holding(tmp_path / "locks"):
        mine = begun(own := tmp_path / "own", tool, overlap)
        time.sleep(1)
        assert not (own / "started").exists()
    wait((own / "at work").exists)
    assert ended(mine, own)[0] == 0 and json.loads((own / "told").read_text()) == [["GPU-a"], None]


def test_which_programs_wait_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(job_limits.LIMITS, json.dumps({"overlap": True}))

    def asked(tool: str = "ncu", words: int = 1, sampled: bool = False, **cell: int) -> bool:
        job = {"tool": tool, "cell": {**CELL, **cell}}
        return environment.overlaps_start(job, ["GPU-a", "GPU-b"][:words], sampled)

    assert all(asked(tool) for tool in ("time", "torch", "nsys", "ncu", "train"))
    # On several GPUs starts overlap anyway, and without one there is nothing to wait for.
    assert not any([asked(words=2), asked(words=0), asked(gpus=2), asked(nodes=2), asked("peaks")])
    # Samples are of the GPU from the start.
    assert not asked("sample", sampled=True)


def waiting(gate: gpu_slots.TurnGate) -> subprocess.Popen[str]:
    """A program that waits for its turn."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from profzoo.machine import gpu_slots; gpu_slots.wait_for_turn()"
    )
    command, environment = [sys.executable, "-c", code, str(PROJECT)], {**os.environ, **gate.variables}
    process = subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE)
    wait(gate.wanted)
    return process


def test_a_program_that_waits_is_asleep(tmp_path: Path) -> None:
    gate = gpu_slots.TurnGate(tmp_path)
    process = waiting(gate)

    def woken() -> str:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next(line for line in lines if line.startswith("voluntary_ctxt_switches"))

    wait(lambda: "S" in Path(f"/proc/{process.pid}/stat").read_text().split()[2])
    before = woken()
    time.sleep(0.3)
    assert woken() == before and process.poll() is None
    gate.open()
    assert process.wait(timeout=60) == 0


# Imports what a program does before its turn, and prints what of torch was asked for GPUs.
IMPORTS = """
import torch
asked = []
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    real = getattr(torch._C, name)
    setattr(torch._C, name, lambda *words, name=name, real=real: asked.append(name) or real(*words))
from profzoo.cell import registry
from profzoo.harness import interface
from profzoo.harness.step import measure
import torch._dynamo
for model in registry.shipped_models().values():
    interface.load_functions(model.module)
before = list(asked)
torch.cuda.is_available()
print(before, asked)
"""


@pytest.mark.slow
def test_nothing_that_is_imported_asks_for_gpus() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORTS], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert answer.stdout == "[] ['_cuda_getDeviceCount']\n"


@pytest.mark.parametrize("batch", ["2", "auto"])
def test_a_cell_takes_its_turn_before_it_looks_for_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    order: list[str] = []

    def noted(module: object, name: str) -> None:
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: order.append(name) or real(*given))

    noted(step_loop, "build_network")
    noted(step_loop, "choose_cell_device")
    noted(measure.gpu_slots, "wait_for_turn")
    words = ["lstm", "train", "sequence_length=4", f"batch={batch}", "warmup=0", "window=1", "device=cpu"]
    assert run.main(words) == 0 and order.index("wait_for_turn") < order.index("choose_cell_device")
    # To find a batch that fits takes the GPU already.
    assert (order[0] == "build_network") == (batch == "2")


def test_gpus_are_taken_in_their_order_as_many_as_are_wanted(tmp_path: Path) -> None:
    words, folder = ["GPU-a", "MIG-b/1", "GPU-c"], tmp_path / "new" / "locks"
    with gpu_slots.hold_gpus(2, words, pytest.fail, LockTerms(folder)) as mine:
        assert mine.words == words[:2]
        paths = [folder / name for name in ("GPU-a.lock", "MIG-b-1.lock")]
        assert sorted(folder.iterdir()) == paths
        assert folder.stat().st_mode & 0o7777 == 0o1777 and paths[0].stat().st_mode & 0o777 == 0o666
        assert [os.fstat(one).st_ino for one in mine.descriptors] == [path.stat().st_ino for path in paths]
        # None is left of two of these, and the third is given back while waiting.
        said = r"waiting for 2 of 3 GPU.* \(GPU-a: process .*; MIG-b/1: process "
        late = gpu_slots.hold_gpus(2, words, lambda line: None, LockTerms(folder, wait_s=0.0))
        with pytest.raises(CollectError, match=said), late:
            pass
        with gpu_slots.hold_gpus(1, words, pytest.fail, LockTerms(folder)) as other:
            assert other.words == ["GPU-c"]
    with gpu_slots.hold_gpus(3, words, pytest.fail, LockTerms(folder)) as mine:
        assert mine.words == words
    too_many = gpu_slots.hold_gpus(4, words, print, LockTerms(folder))
    with pytest.raises(ValueError, match="4 GPUs wanted, 3 there"), too_many:
        pass


def test_a_turn_is_had_once_the_program_wants_it(tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    with gpu_slots.offer_gpu("GPU-a", own, pytest.fail, LockTerms(tmp_path)) as turn:
        assert turn.words == [] and len(turn.descriptors) == 1
        asking = threading.Thread(target=gpu_slots.wait_for_turn, args=({gpu_slots.TURN: str(own)},))
        asking.start()
        asking.join(10)
        assert turn.words == ["GPU-a"] and 0 <= turn.waited_s < 5
    gate = gpu_slots.TurnGate(own)
    assert gate.variables == {"PROFZOO_TURN": str(own)} and gate.wanted()
    gate.open("no GPU")
    with pytest.raises(CollectError, match="no GPU"):
        gpu_slots.wait_for_turn(gate.variables)
    gpu_slots.TurnGate(own).close()
    with pytest.raises(CollectError, match="has ended before its turn"):
        gpu_slots.wait_for_turn(gate.variables)
    gpu_slots.wait_for_turn({})


def test_a_shift_is_over_as_its_worker_says_so_or_ends() -> None:
    foreman = time_slicing.ShiftGiver()
    assert foreman.variables == {"PROFZOO_SHIFT": str(foreman.descriptors[0])} and time_slicing.find_worker({}) is None
    assert not os.get_inheritable(foreman.descriptors[0])
    worker = time_slicing.find_worker(foreman.variables)
    assert worker is not None
    with subprocess.Popen(["sleep", "30"]) as process:
        foreman.go()
        worker.rest()
        assert foreman.over(process)
        process.kill()
        process.wait()
        assert not foreman.over(process)
    foreman.close()
    with pytest.raises(CollectError, match="has ended before its next shift"):
        worker.rest()


def test_results_in_use_or_changed_since_are_refused(tmp_path: Path) -> None:
    results = tmp_path / "results"
    inspect, state = file_locks.inspect_folder, file_locks.FolderState
    assert inspect(results) == state(None, None)
    results.mkdir()
    fresh, path = inspect(results), results / file_locks.NAME
    assert fresh == state(None, results.stat().st_mtime_ns)
    for planned, said in ((state("process 7", None), "in use by another run, process 7"),
                          (state(None, 1), "has used .* while this one was planned")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            file_locks.lock_results(results, planned)
    with file_locks.hold_lock(path) as descriptor:
        assert inspect(results) == state("which has just started", None)
        file_locks.replace_text(descriptor, json.dumps({"pid": 7, "host": "h", "folder": "/f", "since": "now"}))
        assert inspect(results).holder == "process 7 on h in /f, since now"
        with pytest.raises(ConfigError, match="in use by another run, process 7 on h in /f"):
            file_locks.lock_results(results, state(None, results.stat().st_mtime_ns))
    assert inspect(results).holder is None
    held = file_locks.acquire_lock(path, wait=False)
    for process, left in ((os.getpid() + 1, True), (os.getpid(), False)):
        file_locks._release(results, held, process)
        assert results.exists() == path.exists() == left
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)
