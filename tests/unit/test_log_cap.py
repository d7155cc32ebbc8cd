"""machine/capped: of what a job prints, the beginning at once and the end in the end, whatever it prints and however."""

import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profzoo.collect import job_environment
from profzoo.machine import log_cap, processes
from profzoo.machine.log_cap import CappedLog

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


def test_the_end_begins_with_a_whole_line(tmp_path: Path) -> None:
    printed = b"".join(b"line %d\n" % number for number in range(100))
    first, _, last = kept(tmp_path, printed, 100).partition(b" bytes left out ...\n")
    head, _, count = first.partition(b"\n... ")
    assert last.splitlines()[0] in printed.splitlines() and printed.endswith(last)
    assert len(head) + int(count) + len(last) == len(printed)


def run(log: Path, code: str, *words: str) -> int:
    return job_environment.run_logged([sys.executable, "-c", code, *words], log, dict(os.environ))


# Prints so many pieces of a MB under a job's supervisor; tells the most memory, in KB, of itself and of the others.
PRINTING = """
import os, resource, sys
from pathlib import Path
from profzoo.collect import job_environment
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
    assert len(text) < log_cap.LOG_BYTES + 1000 and text.startswith("$ ") and text.endswith("x\nthe end\n")
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


def test_who_keeps_the_pipe_open_holds_nobody(tmp_path: Path) -> None:
    """Processes that the program leaves, one of which prints without an end, in a session of its own."""
    code = (
        "import os, signal, sys, time\n"
        "if not os.fork():\n os.setsid()\n signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        " while True: os.write(1, b'x' * 65536)\n"
        "if not os.fork(): time.sleep(100)\nprint('done')"
    )
    began = time.monotonic()
    assert run(tmp_path / "log", code) == 0
    # Two seconds to end, one after a SIGTERM, and what killing takes.
    assert time.monotonic() - began < 8 and (tmp_path / "log").stat().st_size < log_cap.LOG_BYTES + 1000


def test_a_program_that_closes_its_output_costs_no_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(tmp_path / "log", "import os, time; os.write(1, b'said'); os.close(1); os.close(2); time.sleep(2)") == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (tmp_path / "log").read_text().endswith("\nsaid")
    # Seconds of a core, of which waiting for what does not come would take two.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5


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
