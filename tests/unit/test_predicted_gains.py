"""What changes gain: of programs written row by row, of simulated steps, and of two processes that were traced."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.range_names import PARTS
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys.steps import ranks
from profzoo.what_if import predicted_gains, simulator, tables
from profzoo.what_if.program import Program
from profzoo.what_if.trace_events import COPY, GRAPH, KERNEL, SET
from tests import simulated, simulated_waits
from tests.unit.test_sync_verdicts import MENDED, OPTIMIZER, PASSES, WASTEFUL, micro_batch
from tests.written_programs import BEGINS, ENDS, call, kernel, program


def test_what_is_asked_of_every_program() -> None:
    """Kernels of 5, 5.001, 8, 9, 2 and 3 us, a copy, a set and a graph's node, and one that communicates."""
    ns = [5_000, 5_001, 8_000, 9_000]
    gpu = [kernel(row, time) for row, time in enumerate(ns)]
    gpu += [kernel(4, 4_000, kind=COPY), kernel(5, 4_000, kind=SET), kernel(6, 2_000, node=True), kernel(7, 100, kind=GRAPH),
            kernel(8, 100), kernel(9, 3_000, talking=True)]  # fmt: skip
    one = program([BEGINS, *[call()] * 9], gpu)
    found = {name: change(one).gpu for name, change in predicted_gains.PANEL.items()}
    assert list(found["kernels_2x"]["ns"]) == [2_500, 2_500.5, 4_000, 4_500, 4_000, 4_000, 1_000, 100, 50, 3_000]
    assert list(np.flatnonzero(found["short_kernels_fused"]["gone"])) == [0, 6, 8]
    # Every second of what is launched one by one: 0, 1, 2, 3, 4, 5, 8, 9, of which the last communicates.
    assert list(np.flatnonzero(found["half_the_operators"]["gone"])) == [1, 3, 5]
    assert found["half_the_operators"]["ns"].sum() == one.gpu["ns"].sum()
    assert found["short_kernels_fused"]["ns"].sum() == one.gpu["ns"].sum() - 5_000 - 2_000 - 100
    assert list(predicted_gains.PANEL["host_2x"](program([call(8)], [])).host["gap"]) == [4]


def ahead(cpu: float, gpu: float, steps: int = 5) -> Program:
    """Steps in each of which the CPU takes so long for a kernel, and the GPU so long."""
    host = [BEGINS, call(cpu), ENDS] * steps
    return program(host, [kernel(3 * step + 1, gpu) for step in range(steps)])


def test_a_tracer_made_the_cpu_as_slow_as_comes_to_the_step_without_it() -> None:
    """A CPU of 2 us and a GPU of 1: as much faster as takes it to 1.6 us, or to the GPU's and a hundredth.

    Where the GPU takes next to nothing, to a fifth and a hundredth, as a tracer slows it five times at most.
    """
    for gpu, wanted, times in (
        (1_000, 1_600, 2_000 / 1_600),
        (1_000, 900, 2_000 / 1_010),
        (1_000, 2_100, 1),
        (1, 10, 2_000 / 404),
    ):
        assert predicted_gains.remove_tracing(ahead(2_000, gpu), wanted)[1] == pytest.approx(times, abs=0.004)
    lean, times = predicted_gains.remove_tracing(ahead(2_000, 1_000), 1_600)
    assert simulator.step_times(lean, simulator.simulate(lean)) == pytest.approx([2_000 / times] * 4)


@pytest.mark.parametrize(("known", "times"), [(1.029, 1), (1.04, 1.04), (4.9, 4.9), (9, 5)])
def test_what_is_known_of_a_tracer_counts_where_the_gpu_is_the_limit(known: float, times: float) -> None:
    """But for what is as near to none as a step replayed, and up to five times."""
    lean, found = predicted_gains.remove_tracing(ahead(200, 1_000), 1_000, known)
    assert found == times and lean.host["gap"].max() == pytest.approx(200 / times)


@pytest.mark.parametrize(("gpu", "times"), [(980, 3), (965, 2)])
def test_what_is_known_makes_no_step_shorter_than_it_is(gpu: float, times: float) -> None:
    """Twice as fast the CPU comes to the step of 1 us; three times as fast the GPU's are within 3% of that or not."""
    assert predicted_gains.remove_tracing(ahead(2_000, gpu), 1_000, 3)[1] == pytest.approx(times, abs=0.004)


def test_the_interval_of_a_gain_is_of_a_ratio_of_sums() -> None:
    """30, 32, 28 over 20, 20, 20: 1.5; what is left is 0, 2, -2, so that it deviates by sqrt(8 / 6) / 30 = 0.03849.

    Student's t of 2 degrees of freedom is 2.91999 for 90 %, and 4.30265 for 95 %.
    """
    before, after = np.array([30.0, 32.0, 28.0]), np.full(3, 20.0)
    found = predicted_gains.gain_of_steps(before, after)
    assert (found.gain, found.step_ns, found.predicted_ns) == (1.5, 30, 20)
    assert np.log(found.high / 1.5) == pytest.approx(2.91999 * 0.0384900, rel=1e-5)
    assert np.log(found.low / 1.5) == pytest.approx(-2.91999 * 0.0384900, rel=1e-5)
    wider = predicted_gains.gain_of_steps(before, after, confidence=0.95)
    assert np.log(wider.high / 1.5) == pytest.approx(4.30265 * 0.0384900, rel=1e-5)
    assert np.isnan(predicted_gains.gain_of_steps(before[:1], after[:1]).low)
    # Errors of gains and spread of steps add as squares: 0.11239 and the logarithm of 1.2.
    wrong = predicted_gains.gain_of_steps(before, after, error=0.2)
    assert np.log(wrong.high / 1.5) == pytest.approx(np.hypot(0.112390, 0.182322), rel=1e-4)


def table(launches: list[float], **columns: Any) -> pd.DataFrame:
    """Rows of a table of kernels of the configuration whose numbers are all 0, but for what is said."""
    return pd.DataFrame({name: [0] * len(launches) for name in CONFIGURATION}
                        | {"mangled": [""] * len(launches), "launches": launches} | columns)  # fmt: skip


def test_as_many_operations_are_a_rows_as_it_was_launched() -> None:
    """Two steps of three kernels in forward and one in backward; a copy, and one that communicates, are none."""
    forward, backward = (PARTS.index(part) + 1 for part in ("forward", "backward"))
    host = [BEGINS, call(part=forward), call(part=backward)] * 2
    gpu = [kernel(1), kernel(1), kernel(1), kernel(1, kind=COPY), kernel(2), kernel(4), kernel(4, talking=True), kernel(4),
           kernel(4), kernel(5)]  # fmt: skip
    found = predicted_gains.Operations(replace(program(host, gpu), kernels={0: ""}))
    assert found.of(table([3, 1], range=["forward", "backward"])).tolist() == [0, 0, 0, -1, 1, 0, -1, 0, 0, 1]
    # Of all that are alike, wherever they are: two a step of four, every second of eight.
    assert found.of(table([2])).tolist() == [-1, 0, -1, -1, 0, -1, -1, 0, -1, 0]
    # Rows alike are one; a range that the trace does not have leaves the configuration alone.
    assert found.of(table([1, 1])).tolist() == found.of(table([2])).tolist()
    assert found.of(table([4], range=["loss"])).tolist() == [0, 0, 0, -1, 0, 0, -1, 0, 0, 0]
    assert (found.of(table([4], mangled=["other"])) == -1).all()


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
        return predicted_gains.find_waiting_share(pd.DataFrame(rows))

    assert share(4e6, 1e6, 2e6) == 0.75 and share(1e6, 4e6) == 0 and share(0.0, 0.0) == 0


def test_waits_are_shortened_until_the_step_is_as_long_as_unprofiled(tmp_path: Path) -> None:
    """Traced, each send takes half a millisecond, of which the process waits for three fifths."""
    sending = [*micro_batch(True, 5e5, 5e5), *OPTIMIZER]
    without = [*micro_batch(True, 2e5, 2e5), *OPTIMIZER]
    program, wanted = traced(sending, tmp_path / "a", 0.6), simulated_waits.step_ns(without)
    fitted = predicted_gains.fit_waits(program, wanted, predicted_gains.SLOWEST)
    assert fitted.waiting is not None and fitted.waiting < 0.02
    assert step_ns(fitted) == pytest.approx(wanted, rel=0.01) and step_ns(program) > 1.3 * wanted
    # Half way between both, half of the waiting is left: 0.15 of 0.35 ms.
    half = simulated_waits.step_ns([*micro_batch(True, 3.5e5, 3.5e5), *OPTIMIZER])
    assert predicted_gains.fit_waits(program, half, predicted_gains.SLOWEST).waiting == pytest.approx(3 / 7, abs=0.02)
    # Where the unprofiled step is as long, the process waited without the tracer too.
    assert predicted_gains.fit_waits(program, step_ns(program), predicted_gains.SLOWEST) is program
    assert predicted_gains.fit_waits(replace(program, waiting=None), 1.0, predicted_gains.SLOWEST).waiting is None


def test_a_process_that_sends_less_often_waits_as_long_for_the_others(tmp_path: Path) -> None:
    """What it waits in three passes, half of 0.5 ms each, it waits in the first send of the last one."""
    moved = 0.5 * (PASSES - 1) * (2e5 + 3e5)
    twin = [*micro_batch(False) * (PASSES - 1), *micro_batch(True, 2e5 + moved), *OPTIMIZER]
    program = traced(WASTEFUL, tmp_path / "a", 0.5)
    assert step_ns(predicted_gains.send_once(program)) == pytest.approx(simulated_waits.step_ns(twin), rel=0.02)
    alone = predicted_gains.send_once(replace(program, waiting=None))
    assert step_ns(alone) == pytest.approx(simulated_waits.step_ns(MENDED), rel=0.02)


@pytest.mark.slow
def test_both_processes_of_a_training_predict_the_same_steps(recording: Callable) -> None:
    """The first waits for the second, for 3 of its 7.8 ms of communication; traced, its GPU was busy for 10.6 ms."""
    paths = [recording(f"nsys/two_processes/train.{rank}.sqlite") for rank in (0, 1)]
    table = ranks.tabulate_ranks(paths, 2).sort_values("rank")
    share = predicted_gains.find_waiting_share(table)
    assert share == pytest.approx(0.385, abs=0.001) and table["busy_ns"].iloc[0] > 1.3 * SENT_OFTEN_NS
    before, after = [], []
    for path, waiting in zip(paths, (share, 0.0), strict=True):
        _, host, (lean,) = tables.make_tables(path, SENT_OFTEN_NS, waiting=waiting, host_ns=CPU_NS)
        before.append(host["step_ns"].item())
        after.append(step_ns(predicted_gains.send_once(lean)))
    assert before == pytest.approx([SENT_OFTEN_NS] * 2, rel=0.03)
    assert after[0] == pytest.approx(after[1], rel=0.1)
    # Without the table of processes, the first process's replay stays as long as its trace.
    _, unfitted, _ = tables.make_tables(paths[0], SENT_OFTEN_NS, host_ns=CPU_NS)
    assert unfitted["step_ns"].item() > 1.3 * SENT_OFTEN_NS


def test_gradients_that_are_sent_once_are_packed_once(recording: Callable) -> None:
    """Each send goes with a multiplication into a bucket and a copy back: together, they take 1.7 ms of these steps."""
    path = recording("nsys/two_processes/limited_by_gpu.0.sqlite")
    _, _, (program,) = tables.make_tables(path, LIMITED_BY_GPU_NS, host_ns=LIMITED_BY_GPU_CPU_NS, waiting=0.0)
    after = predicted_gains.send_once(program)
    assert step_ns(program) == pytest.approx(LIMITED_BY_GPU_NS, rel=0.01)
    assert step_ns(after) == pytest.approx(LIMITED_BY_GPU_ONCE_NS, rel=0.02)
    packing = predicted_gains.find_packing(program, predicted_gains.find_early_sends(program))
    kinds = program.gpu["kind"][packing].value_counts() / program.steps
    # Of each of three passes, two weights and two biases.
    assert kinds.to_dict() == {KERNEL: 12, COPY: 12}
    # Of kernels and copies with these names, the other training had so much less per step.
    assert program.gpu["ns"][packing].sum() / program.steps == pytest.approx(1.76e6, rel=0.05)
