"""The log of a job: of what it prints the beginning at once and the end in the end, whatever it prints and however."""

import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profzoo.collect import environment
from profzoo.machine import processes, supervisor
from profzoo.machine.supervisor import CappedLog

SEED = 0


PROJECT = Path(__file__).parents[2]


def kept(folder: Path, printed: bytes, limit: int, piece: int = 1000) -> bytes:
    """What the file holds once all of that was printed, in pieces."""
    path = folder / "log"
    with path.open("wb") as file:
        pipe = CappedLog(file.fileno(), limit)
        for begin in range(0, len(printed), piece):
            os.write(pipe.given, printed[begin : begin + piece])
            assert pipe.read()
        os.close(pipe.given)
        pipe.close()
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 49, 50, 51, 99, 100])
@pytest.mark.parametrize("piece", [1, 7, 100])
def test_what_is_within_bounds_is_whole(tmp_path: Path, size: int, piece: int) -> None:
    printed = random.Random(SEED).randbytes(size)
    assert kept(tmp_path, printed, 100, piece) == printed


@pytest.mark.parametrize("size", [101, 149, 150, 151, 1000, 12_345])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_of_more_the_beginning_and_the_end_are_there(tmp_path: Path, size: int, piece: int) -> None:
    printed = random.Random(SEED).randbytes(size).replace(b"\n", b" ")
    assert kept(tmp_path, printed, 100, piece) == (
        printed[:50] + f"\n... {size - 100:,} bytes left out ...\n".encode() + printed[-50:]
    )


def run(log: Path, code: str, *words: str) -> int:
    return environment.run_logged([sys.executable, "-c", code, *words], log, dict(os.environ))


# Prints so many pieces of a MB under a job's supervisor; tells the most memory, in KB, of itself and of the others.
PRINTING = """
import os, resource, sys
from pathlib import Path
from profzoo.collect import environment as job_environment
piece = "import os, sys\\nfor _ in range(int(sys.argv[1])): os.write(1, (b'x' * 63 + b'\\\\n') * (1 << 14))\\nprint('the end')"
assert not job_environment.run_logged([sys.executable, "-c", piece, sys.argv[2]], Path(sys.argv[1]), dict(os.environ))
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]
print(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.parametrize("count", [32, pytest.param(1024, marks=pytest.mark.faults)])
def test_a_program_that_prints_much_has_a_log_of_bounded_size(tmp_path: Path, count: int) -> None:
    words = [sys.executable, "-c", PRINTING, str(tmp_path / "log"), str(count)]
    memory = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True).stdout
    text = (tmp_path / "log").read_text()
    assert len(text) < supervisor.LOG_BYTES + 1000 and text.startswith("$ ") and text.endswith("x\nthe end\n")
    assert all(int(number) < 50 << 10 for number in memory.split()), memory


def test_the_beginning_is_there_while_the_program_runs_and_its_end_after_a_kill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import os, pathlib, signal, sys\nprint('began', flush=True)\n"
        "while 'began' not in pathlib.Path(sys.argv[1]).read_text().splitlines(): pass\n"
        "print('x' * 10_000_000, 'ended', sep='\\n', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run(log, code, str(log)) == -9
    text = log.read_text()
    assert "\nbegan\nxxx" in text and text.endswith("x\nended\n") and " bytes left out ...\n" in text


@pytest.mark.slow
def test_who_keeps_the_pipe_open_holds_nobody(tmp_path: Path) -> None:
    """Processes that the program leaves, one of which prints without an end, in a session of its own."""
    code = (
        "import os, signal, sys, time\n"
        "if not os.fork():\n os.setsid()\n signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        " while True: os.write(1, b'x' * 65536); time.sleep(0.01)\n"
        "if not os.fork(): time.sleep(100)\nprint('done')"
    )
    began = time.monotonic()
    assert run(tmp_path / "log", code) == 0
    # Two seconds to end, one after a SIGTERM, and what killing takes.
    assert time.monotonic() - began < 8 and (tmp_path / "log").stat().st_size < supervisor.LOG_BYTES + 1000


def test_a_program_that_closes_its_output_costs_no_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (
        run(tmp_path / "log", "import os, time; os.write(1, b'said'); os.close(1); os.close(2); time.sleep(0.5)") == 0
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (tmp_path / "log").read_text().endswith("\nsaid")
    # Seconds of a core, of which waiting for what does not come would take half a one more than starting Python twice.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.45


def test_a_log_on_a_full_disk_costs_nothing_else() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        words = [sys.executable, "-c", "print('x' * 20_000_000); raise SystemExit(7)"]
        assert processes.run_command(words, full, dict(os.environ)) == 7
        assert processes.run_command(["no such program"], full, dict(os.environ)) == 127


def test_what_an_earlier_job_still_prints_does_not_reach_the_next_ones_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as earlier:
        assert run(log, "print('mine')") == 0
        earlier.write(b"of another job")
    assert log.read_text().endswith("\nmine\n") and "another" not in log.read_text()


# Ends of logs.


@pytest.mark.parametrize(("before", "begins"), [(0, 1), (4095, 4096), (4096, 0)])
def test_the_end_begins_behind_a_line_that_ends_within_4096_bytes(tmp_path: Path, before: int, begins: int) -> None:
    end = b"x" * before + b"\n" + b"y" * (10_000 - before - 1)
    found = kept(tmp_path, b"a" * 10_000 + b"b" * 100 + end, 20_000)
    assert found == b"a" * 10_000 + f"\n... {100 + begins:,} bytes left out ...\n".encode() + end[begins:]


def test_a_log_holds_eight_mib_at_most_by_halves(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        pipe = supervisor.CappedLog(file.fileno())
        assert (pipe._first, len(pipe._ring)) == (4 * 2**20, 4 * 2**20)
        os.close(pipe.given)
        pipe.close()


def test_what_comes_meanwhile_is_taken_until_the_time_is_over(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as file:
        pipe = supervisor.CappedLog(file.fileno(), 100)
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
