"""Forked processes behave as processes that start by themselves: codes, output, signals, ends, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profzoo.experiments import interleaved_runs
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.machine import process_tree, surroundings, time_slicing
from tests.faults.jobs import wait_for_ends
from tests.unit.test_gpu_slots import PROJECT

# A program as models.run is one: what `prepare` makes is there in each fork.
PROGRAM = """
import _thread, ctypes, os, random, signal, sys, threading, time
from pathlib import Path
prepared = []
def prepare(words):
    prepared.append(os.getpid())
    if "prepare=fails" in words:
        raise ValueError("no such model")
    if "prepare=threads" in words:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if "prepare=allocator" in words:
        _thread.start_new_thread(allocate, ())
        time.sleep(0.2)
def allocate():
    ctypes.CDLL(None).prctl(15, b"jemalloc_bg_thd", 0, 0, 0)
    time.sleep(60)
def main(words):
    given = dict(word.split("=", 1) for word in words if "=" in word)
    print("said", given.get("say"), flush=True)
    print("an error", file=sys.stderr)
    if "where" in given:
        Path(given["where"]).write_text(f"{os.getpid()} {prepared[0]} {random.random()} {os.environ.get('OF_ITS_OWN')}")
    if given.get("end") == "raises":
        raise RuntimeError("it cannot")
    if given.get("end") == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if given.get("end") == "sleeps":
        time.sleep(60)
    if given.get("end") == "exits":
        sys.exit("a last word")
    return int(given.get("code", 0))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "forkable.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PROJECT)]))
    return "forkable"


@pytest.fixture
def starter() -> Iterator[ProcessStarter]:
    with closing(ProcessStarter(fork=True)) as found:
        yield found


def command(program: str, *words: str, model: str = "m") -> list[str]:
    return [sys.executable, "-m", program, model, *words]


def started(where: Path) -> tuple[int, int]:
    """The ids of a process and of its server, once the process has left them."""
    while not where.exists() or not where.read_text():
        time.sleep(0.01)
    own, server = where.read_text().split()[:2]
    return int(own), int(server)


def codes(starter: ProcessStarter, commands: list[list[str]], folder: Path, at_once: int = 1) -> list[int]:
    """Exit codes of these commands in turn; each prints into its own file."""
    printed = [folder / f"{number}.txt" for number in range(len(commands))]
    with closing(interleaved_runs.run_in_turn(commands, at_once, printed, starter=starter)) as found:
        return list(found)


def test_each_process_is_a_fork_with_own_output_and_code(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    words = [[f"say={name}", f"where={tmp_path / name}", f"code={code}"] for name, code in (("a", 0), ("b", 3))]
    assert codes(starter, [command(program, *some) for some in words], tmp_path) == [0, 3]
    said = [(tmp_path / f"{number}.txt").read_text() for number in range(2)]
    assert said == ["said a\nan error\n", "said b\nan error\n"]
    (one, first, drawn, _), (other, second, again, _) = ((tmp_path / name).read_text().split() for name in "ab")
    # Both come from one process that prepared once, and draw other random numbers.
    assert first == second and len({one, other, first}) == 3 and drawn != again
    assert not process_tree.is_alive(int(one)) and process_tree.is_alive(int(first))
    starter.close()
    assert not process_tree.is_alive(int(first))


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("raises", 1, "RuntimeError: it cannot"), ("crashes", -signal.SIGSEGV, "said a"), ("exits", 1, "a last word")],
)
def test_a_fork_fails_as_a_process_of_its_own(program: str, tmp_path: Path, end: str, code: int, said: str) -> None:
    found = {}
    for fork in (True, False):
        (folder := tmp_path / str(fork)).mkdir()
        main = "import sys, forkable\nforkable.prepared = [0]\nsys.exit(forkable.main(sys.argv[1:]))\n"
        (tmp_path / "alone.py").write_text(main)
        with closing(ProcessStarter(fork)) as starter:
            words = command(program if fork else "alone", f"end={end}", "say=a")
            # What comes after a failed one runs.
            after = command(program if fork else "alone", "say=b")
            found[fork] = codes(starter, [words, after], folder)
        assert said in (folder / "0.txt").read_text() and "said b" in (folder / "1.txt").read_text()
    assert found[True] == found[False] == [code, 0]


def test_closing_ends_what_runs(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    running = interleaved_runs.run_in_turn([command(program, "end=sleeps", f"where={where}")], 1, starter=starter)
    process = starter.start(command(program, "end=sleeps", f"where={where}"), {})
    own, _ = started(where)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL and not process_tree.is_alive(own)
    running.close()


PARENT = """
import sys
from profzoo.experiments.forked_runs import ProcessStarter
starter = ProcessStarter(fork=True)
starter.start([sys.executable, "-m", *sys.argv[1:]], {}).wait()
"""


def test_a_parent_that_is_killed_leaves_no_process(program: str, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    words = [sys.executable, "-c", PARENT, *command(program, "end=sleeps", f"where={where}")[2:]]
    with subprocess.Popen(words) as parent:
        ids = started(where)
        parent.kill()
    wait_for_ends(ids, 5)


def test_a_server_that_is_killed_ends_its_processes(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    process = starter.start(command(program, "end=sleeps", f"where={where}"), {})
    own, server = started(where)
    os.kill(server, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    wait_for_ends([own], 5)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("prepare=fails", "because ValueError: no such model"),
        ("prepare=threads", "because an import or building the network started 1 thread(s): Thread-1 (sleep)"),
    ],
)
def test_what_cannot_be_forked_starts_by_itself_and_the_reason_is_said_once(
    program: str, starter: ProcessStarter, tmp_path: Path, capfd: pytest.CaptureFixture[str], word: str, why: str
) -> None:
    (tmp_path / "forkable.py").write_text(PROGRAM + "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n")
    words = command(program, word, "code=4")
    assert codes(starter, [words, words], tmp_path) == [4, 4] and not starter.prepare(words)
    said = capfd.readouterr().err
    assert said.count("profzoo: each process starts by itself") == 1 and why in said


def test_a_thread_that_forks_start_again_does_not_matter(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    assert codes(starter, [command(program, "prepare=allocator", "code=4")], tmp_path) == [4]
    assert starter.prepare(command(program)) and starter.separate_why == ""


def test_other_models_have_servers_of_their_own(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    models = ["m", "m@bf16", "n", "m"]
    words = [command(program, f"where={tmp_path / str(number)}", model=model) for number, model in enumerate(models)]
    assert codes(starter, words, tmp_path) == [0] * 4
    m, variant, n, again = ((tmp_path / str(number)).read_text().split()[1] for number in range(4))
    assert m == variant == again != n


def test_variables_and_shifts_reach_a_fork(program: str, starter: ProcessStarter, tmp_path: Path) -> None:
    where = tmp_path / "pid"
    assert starter.start(command(program, f"where={where}"), {"OF_ITS_OWN": "yes"}).wait() == 0
    assert where.read_text().split()[3] == "yes"
    # Its variables are not the next one's.
    assert starter.start(command(program, f"where={where}"), {}).wait() == 0
    assert where.read_text().split()[3] == "None"
    (tmp_path / "resting.py").write_text(
        "from profzoo.machine import time_slicing\n\n\ndef prepare(words):\n    pass\n\n\n"
        "def main(words):\n    time_slicing.find_worker().rest()\n    return 7\n"
    )
    with closing(time_slicing.ShiftGiver()) as foreman:
        process = starter.start(command("resting"), foreman.variables, None, time_slicing.SHIFT)
        assert foreman.over(process) and process.poll() is None
        foreman.go()
        assert process.wait() == 7 and not foreman.over(process)


def test_a_process_with_a_cuda_file_is_not_forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(surroundings, "count_threads", lambda: 1)
    # Other tests of this process may have asked torch for CUDA.
    monkeypatch.setattr(surroundings, "CUDA", "torch.none")
    assert surroundings.explain_unsafe() == ""
    (path := tmp_path / "nvidia-uvm").touch()
    monkeypatch.setattr(surroundings, "OF_CUDA", str(path))
    with path.open():
        assert surroundings.explain_unsafe().startswith("CUDA was initialised")


# Of real cells.
SMALL = ["device=cpu", "window=3", "warmup=1", "batch=2"]


def cell_facts(folder: Path, fork: bool, *words: str, count: int = 1) -> list[dict]:
    """Facts of real processes of a cell."""
    (folder := folder / str(fork)).mkdir(parents=True)
    commands = [
        [sys.executable, "-m", "models.run", *words, *SMALL, "--steps", str(folder / f"{number}.csv"),
         "--facts", str(folder / f"{number}.json")] for number in range(count)
    ]  # fmt: skip
    with closing(ProcessStarter(fork)) as starter:
        assert codes(starter, commands, folder) == [0] * count, (folder / "0.txt").read_text()
        assert starter.separate_why == ""
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["lstm", "train", "workers=2", "seed=3"],
        ["lstm", "train", "compile=true"],
        ["mobilenetv2", "inference", "size=64", "threads=2", "deterministic=true"],
    ],
)
def test_forked_cells_compute_what_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Bit for bit, also with workers of a DataLoader, with a compiled network and with several threads."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    first, second = cell_facts(tmp_path, True, *words, count=2)
    (alone,) = cell_facts(tmp_path, False, *words)
    same = [
        "loss", "outputs", "parameters", "batch", "steps", "items", "threads", "peak_memory_bytes", "device",
        "input",
    ]  # fmt: skip
    assert [first.get(key) for key in same] == [second.get(key) for key in same] == [alone.get(key) for key in same]
    assert first["threads"] == 2
