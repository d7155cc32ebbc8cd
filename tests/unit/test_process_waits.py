"""Waits of a process for others in communication: of simulated steps by hand, and of two processes that were traced."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from profzoo.tools.nsys import ranks
from profzoo.what_if import gradient_sends, predicted_gains, process_waits, simulator, storage, tables
from profzoo.what_if.program import Program
from profzoo.what_if.trace_events import COPY, KERNEL
from tests import simulated, simulated_waits
from tests.unit.test_sync_verdicts import MENDED, OPTIMIZER, PASSES, WASTEFUL, micro_batch

# Unprofiled, the steps of tests/data/nsys/two_processes took so long, as they are and with gradients sent once, and the
# CPU at least so long for a step.
SENT_OFTEN_NS, CPU_NS = 7_903_554, 6_193_829
LIMITED_BY_GPU_NS, LIMITED_BY_GPU_ONCE_NS, LIMITED_BY_GPU_CPU_NS = 14_140_675, 8_004_566, 4_905_000


def traced(inside: list, folder: Path, waiting: float | None = None) -> Program:
    folder.mkdir(exist_ok=True)
    recording = simulated.simulate(simulated_waits.steps(inside))
    (program,) = tables.read_programs(simulated.record(recording, folder / "t.sqlite", True))
    return replace(program, waiting=waiting)


def step_ns(program: Program) -> float:
    return float(simulator.step_times(program, simulator.simulate(program)).mean())


def test_the_process_that_communicates_shortest_waits_for_none() -> None:
    def share(*communication: float) -> float:
        rows = {"rank": range(len(communication)), "communication_ns": communication}
        return process_waits.find_waiting_share(pd.DataFrame(rows))

    assert share(4e6, 1e6, 2e6) == 0.75 and share(1e6, 4e6) == 0 and share(0.0, 0.0) == 0


def test_waits_are_shortened_until_the_step_is_as_long_as_unprofiled(tmp_path: Path) -> None:
    """Traced, each send takes half a millisecond, of which the process waits for three fifths."""
    sending = [*micro_batch(True, 5e5, 5e5), *OPTIMIZER]
    without = [*micro_batch(True, 2e5, 2e5), *OPTIMIZER]
    program, wanted = traced(sending, tmp_path / "a", 0.6), simulated_waits.step_ns(without)
    fitted = process_waits.fit_waits(program, wanted, predicted_gains.SLOWEST)
    assert fitted.waiting is not None and fitted.waiting < 0.02
    assert step_ns(fitted) == pytest.approx(wanted, rel=0.01) and step_ns(program) > 1.3 * wanted
    # Half way between both, half of the waiting is left: 0.15 of 0.35 ms.
    half = simulated_waits.step_ns([*micro_batch(True, 3.5e5, 3.5e5), *OPTIMIZER])
    assert process_waits.fit_waits(program, half, predicted_gains.SLOWEST).waiting == pytest.approx(3 / 7, abs=0.02)
    # Where the unprofiled step is as long, the process waited without the tracer too.
    assert process_waits.fit_waits(program, step_ns(program), predicted_gains.SLOWEST) is program
    assert process_waits.fit_waits(replace(program, waiting=None), 1.0, predicted_gains.SLOWEST).waiting is None


def test_a_process_that_sends_less_often_waits_as_long_for_the_others(tmp_path: Path) -> None:
    """What it waits in three passes, half of 0.5 ms each, it waits in the first send of the last one."""
    moved = 0.5 * (PASSES - 1) * (2e5 + 3e5)
    twin = [*micro_batch(False) * (PASSES - 1), *micro_batch(True, 2e5 + moved), *OPTIMIZER]
    program = traced(WASTEFUL, tmp_path / "a", 0.5)
    assert step_ns(gradient_sends.send_once(program)) == pytest.approx(simulated_waits.step_ns(twin), rel=0.02)
    alone = gradient_sends.send_once(replace(program, waiting=None))
    assert step_ns(alone) == pytest.approx(simulated_waits.step_ns(MENDED), rel=0.02)


def test_a_file_of_programs_keeps_how_long_they_wait(tmp_path: Path) -> None:
    program = traced(MENDED, tmp_path / "a")
    for waiting in (None, 0.0, 0.25):
        storage.write([replace(program, waiting=waiting)], tmp_path / "p.npz")
        (read,) = storage.read(tmp_path / "p.npz").values()
        assert read.waiting == waiting


def test_both_processes_of_a_training_predict_the_same_steps(recording: Callable) -> None:
    """The first waits for the second, for 3 of its 7.8 ms of communication; traced, its GPU was busy for 10.6 ms."""
    paths = [recording(f"nsys/two_processes/train.{rank}.sqlite") for rank in (0, 1)]
    table = ranks.tabulate_ranks(paths, 2).sort_values("rank")
    share = process_waits.find_waiting_share(table)
    assert share == pytest.approx(0.385, abs=0.001) and table["busy_ns"].iloc[0] > 1.3 * SENT_OFTEN_NS
    before, after = [], []
    for path, waiting in zip(paths, (share, 0.0), strict=True):
        _, host, (lean,) = tables.make_tables(path, SENT_OFTEN_NS, waiting=waiting, host_ns=CPU_NS)
        before.append(host["step_ns"].item())
        after.append(step_ns(gradient_sends.send_once(lean)))
    assert before == pytest.approx([SENT_OFTEN_NS] * 2, rel=0.03)
    assert after[0] == pytest.approx(after[1], rel=0.1)
    # Without the table of processes, the first process's replay stays as long as its trace.
    _, unfitted, _ = tables.make_tables(paths[0], SENT_OFTEN_NS, host_ns=CPU_NS)
    assert unfitted["step_ns"].item() > 1.3 * SENT_OFTEN_NS


def test_gradients_that_are_sent_once_are_packed_once(recording: Callable) -> None:
    """Each send goes with a multiplication into a bucket and a copy back: together, they take 1.7 ms of these steps."""
    path = recording("nsys/two_processes/limited_by_gpu.0.sqlite")
    _, _, (program,) = tables.make_tables(path, LIMITED_BY_GPU_NS, host_ns=LIMITED_BY_GPU_CPU_NS, waiting=0.0)
    after = gradient_sends.send_once(program)
    assert step_ns(program) == pytest.approx(LIMITED_BY_GPU_NS, rel=0.01)
    assert step_ns(after) == pytest.approx(LIMITED_BY_GPU_ONCE_NS, rel=0.02)
    packing = gradient_sends.find_packing(program, gradient_sends.find_early_sends(program))
    kinds = program.gpu["kind"][packing].value_counts() / program.steps
    # Of each of three passes, two weights and two biases.
    assert kinds.to_dict() == {KERNEL: 12, COPY: 12}
    # Of kernels and copies with these names, the other training had so much less per step.
    assert program.gpu["ns"][packing].sum() / program.steps == pytest.approx(1.76e6, rel=0.05)
