"""shifts: programs that start together work a few steps each, there and back, and none waits for one that has ended."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from profzoo.errors import CollectError
from profzoo.harness.observers import recorders
from profzoo.machine import time_slicing
from tests.unit.test_gpu_slots import PROJECT

# Works by shifts, as often as it is told to, and starts a program that outlives it.
PROGRAM = """
import subprocess, sys
from profzoo.machine import time_slicing
worker = time_slicing.find_worker()
subprocess.Popen(["sleep", "5"])
for _ in range(int(sys.argv[1])):
    worker.rest()
sys.exit(3)
"""


def begun(foreman: time_slicing.ShiftGiver, count: int) -> subprocess.Popen[bytes]:
    """A program that rests so many times."""
    environment = {**os.environ, **foreman.variables, "PYTHONPATH": str(PROJECT)}
    words = [sys.executable, "-c", PROGRAM, str(count)]
    return subprocess.Popen(words, env=environment, pass_fds=foreman.descriptors)


def test_a_program_rests_until_its_next_shift_and_its_end_is_seen() -> None:
    with closing(time_slicing.ShiftGiver()) as foreman, begun(foreman, 2) as process:
        for _ in range(2):
            assert foreman.over(process) and process.poll() is None
            foreman.go()
        assert not foreman.over(process) and process.wait() == 3


def test_the_end_of_a_killed_program_is_seen() -> None:
    with closing(time_slicing.ShiftGiver()) as foreman, begun(foreman, 2) as process:
        assert foreman.over(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        foreman.go()
        assert not foreman.over(process)


def test_a_program_that_nobody_gives_a_shift_ends() -> None:
    foreman = time_slicing.ShiftGiver()
    worker = time_slicing.find_worker(foreman.variables)
    foreman.close()
    assert worker
    with pytest.raises(CollectError, match="ended before its next shift"):
        worker.rest()
    assert time_slicing.find_worker({}) is None


class Clock:
    """A host's clock that goes by hand; in place of a worker too, which rests for an hour of it."""

    ns = 0

    def now(self) -> int:
        return self.ns

    mark = now

    def between(self, first: int, last: int) -> float:
        return float(last - first)

    def wait(self) -> None:
        pass

    def rest(self) -> None:
        self.ns += 3_600_000_000_000


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_what_a_process_rests_is_no_part_of_its_steps(steps: int, tmp_path: Path) -> None:
    timer = recorders.StepTimer(torch.device("cpu"), tmp_path / "steps.csv")
    timer.clock = timer._worker = clock = Clock()
    timer.start()
    for step in range(steps):
        clock.ns += 11_000_000 + step
        timer.step(4)
    timer.stop()
    rows = (tmp_path / "steps.csv").read_text().splitlines()[1:]
    assert rows == [f"{step},{11_000_000 + step},,4," for step in range(steps)]
    assert timer.window_wall_ns == sum(11_000_000 + step for step in range(steps))
    # Three take 33 ms.
    assert timer.shifts == 1 + steps // 3
