"""When rows of a program and operations on the GPU begin and end in a run, each worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from profzoo.what_if import predicted_gains, simulator, tables
from profzoo.what_if.dependencies import ALL, BEFORE, NOTHING, OPERATION, STREAM
from profzoo.what_if.program import Program
from tests import slow
from tests.written_programs import BEGINS, ENDS, call, kernel, program


def test_a_kernel_waits_for_its_call_and_for_its_stream() -> None:
    """The second is 10 ns from its call, the third 1 ns after the second, which was not over."""
    host = [BEGINS, call(5, 6), call(5, 6), call(2, 1), ENDS | {"gap": 3.0}]
    gpu = [kernel(1, 4, latency=10, gap=1), kernel(2, 4, latency=10, gap=1), kernel(3, 4, latency=1, gap=1)]
    ran = simulator.simulate(program(host, gpu))
    assert ran.host_starts.tolist() == [0, 5, 16, 24, 28] and ran.host_ends.tolist() == [0, 11, 22, 25, 28]
    assert ran.gpu_starts.tolist() == [15, 26, 31] and ran.gpu_ends.tolist() == [19, 30, 35]


def test_a_call_of_another_thread_begins_by_the_start_of_the_row_before() -> None:
    """It ends first, and what follows waits for the longer of both."""
    ran = simulator.simulate(program([call(0, 10), call(2, 3, overlaps=True), call(1, 1)], []))
    assert ran.host_starts.tolist() == [0, 2, 11]


@pytest.mark.parametrize(
    ("wait", "target", "ends"), [(ALL, -1, 54), (STREAM, 7, 34), (STREAM, 9, 4), (OPERATION, 0, 14)]
)
def test_a_wait_ends_a_tail_after_what_is_waited_for(wait: int, target: int, ends: float) -> None:
    """10 and 20 ns on stream 7, 50 on stream 20, and nothing on stream 9."""
    host = [call(), call(), call(), call(0, 1, wait=wait, target=target, tail=4)]
    ran = simulator.simulate(program(host, [kernel(0, 10), kernel(1, 20), kernel(2, 50, stream=20)]))
    assert ran.host_ends[-1] == ends
    # Its own time counts where it is longer.
    host[-1]["own"] = 100
    assert simulator.simulate(program(host, [kernel(0, 10)])).host_ends[-1] == 100


def test_a_call_that_waits_before_it_launches_takes_its_own_time_after_that() -> None:
    host = [call(), call(2, 5, wait=BEFORE, target=0, tail=90), call(0, 5, wait=BEFORE, target=0)]
    ran = simulator.simulate(program(host, [kernel(0, 30), kernel(1, 1, latency=3), kernel(2, 1, latency=3)]))
    assert ran.host_ends.tolist() == [0, 35, 40]
    assert ran.gpu_starts.tolist() == [0, 33, 38]


def test_a_full_queue_holds_the_call_until_an_earlier_launch_begins() -> None:
    """Of 100 ns each, two in the queue; calls of 1 ns. The fourth finds room at 100, the fifth at 200."""
    host = [call(0, 1)] * 5
    ran = simulator.simulate(program(host, [kernel(row, 100, room=2) for row in range(5)]))
    assert ran.gpu_starts.tolist() == [0, 100, 200, 300, 400]
    assert ran.host_ends.tolist() == [1, 2, 3, 101, 201]


def test_what_is_gone_takes_no_room_nor_do_other_operations_of_a_call() -> None:
    gpu = [kernel(0, 100, room=1), kernel(1, 100, room=1, gone=True), kernel(2, 100, room=1), kernel(2, 100, room=1),
           kernel(3, 100, room=1)]  # fmt: skip
    ran = simulator.simulate(program([call(0, 1)] * 4, gpu))
    # The third call finds room as the first kernel has begun, the fourth as the third call's first has.
    assert ran.host_ends.tolist() == [1, 2, 3, 101]
    assert ran.gpu_starts.tolist() == [0, 100, 100, 200, 300]


def test_a_call_of_which_the_first_is_gone_takes_the_room_of_its_next() -> None:
    gpu = [kernel(0, 100, room=1), kernel(1, 9, gone=True, stream=20), kernel(1, 100, room=1), kernel(2, 100, room=1)]
    assert simulator.simulate(program([call(0, 1)] * 3, gpu)).host_ends.tolist() == [1, 2, 101]


def test_queues_are_of_streams() -> None:
    gpu = [kernel(0, 100, room=1), kernel(1, 100, room=1), kernel(2, 100, room=1, stream=20), kernel(3, 1, room=1)]
    assert simulator.simulate(program([call(0, 1)] * 4, gpu)).host_ends.tolist() == [1, 2, 3, 101]


def test_what_follows_one_that_is_gone_waits_as_that_did() -> None:
    gpu = [kernel(0, 10), kernel(1, 50, stream=20), kernel(2, 99, gone=True, dep=1, dep_gap=5), kernel(3, 4, gap=1)]
    ran = simulator.simulate(program([call()] * 4, gpu))
    assert ran.gpu_starts.tolist() == [0, 0, 50, 51] and ran.gpu_ends.tolist() == [10, 50, 50, 55]
    # The first of all begins at 0, and keeps no one.
    alone = simulator.simulate(
        program([call(8, 0), call()], [kernel(0, 99, gone=True, latency=3), kernel(1, 4, gap=1)])
    )
    assert alone.gpu_starts.tolist() == [0, 8] and alone.gpu_ends.tolist() == [0, 12]


def test_an_operation_waits_for_the_first_of_all_as_for_any() -> None:
    gpu = [kernel(0, 50, stream=20), kernel(1, 1, dep=0, dep_gap=5), kernel(2, 1, dep=0, dep_gap=-20)]
    assert simulator.simulate(program([call()] * 3, gpu)).gpu_starts.tolist() == [0, 55, 56]


def test_a_stream_holds_what_waits_for_a_later_launch() -> None:
    """Both of stream 7 wait until the launch of 40 ns at 2, behind which comes a gap of 3."""
    host = [call(0, 1)] * 3
    gpu = [kernel(0, 5, dep=2, dep_gap=3), kernel(1, 5), kernel(2, 40, stream=20)]
    assert simulator.simulate(program(host, gpu)).gpu_starts.tolist() == [45, 50, 2]
    # Streams that wait for each other's: 5 ns after 40, then 5 more.
    gpu = [kernel(0, 5, dep=1), kernel(1, 5, dep=2, stream=20), kernel(2, 40, stream=21)]
    assert simulator.simulate(program(host, gpu)).gpu_starts.tolist() == [47, 42, 2]


def test_a_stream_lets_go_what_no_longer_waits_alone() -> None:
    gpu = [kernel(0, 5, dep=2), kernel(1, 5, dep=3), kernel(2, 10, stream=20), kernel(3, 100, stream=21)]
    assert simulator.simulate(program([call(0, 1)] * 4, gpu)).gpu_starts.tolist() == [12, 103, 2, 3]


def test_what_waits_for_the_first_of_all_is_held_as_long_as_that() -> None:
    """The first waits for 40 ns from 2 on and takes 5; behind another of its stream it waits for that too."""
    gpu = [kernel(0, 5, dep=2), kernel(1, 5, dep=0, stream=20), kernel(2, 40, stream=21)]
    assert simulator.simulate(program([call(0, 1)] * 3, gpu)).gpu_starts.tolist() == [42, 47, 2]
    gpu = [kernel(0, 5, dep=4), kernel(1, 5, dep=3, stream=20), kernel(2, 5, dep=0, stream=20),
           kernel(3, 10, stream=21), kernel(4, 100, stream=22)]  # fmt: skip
    assert simulator.simulate(program([call(0, 1)] * 5, gpu)).gpu_starts.tolist() == [104, 13, 109, 3, 4]


def test_a_cpu_that_waits_meanwhile_lets_go_what_waits_for_a_later_launch() -> None:
    """It would never be launched: the two of 5 ns run at once, and the wait ends 2 ns after them."""
    for wait, target in ((ALL, -1), (STREAM, 7), (OPERATION, 1)):
        host = [call(0, 1), call(0, 1), call(0, 1, wait=wait, target=target, tail=2), call(0, 1)]
        gpu = [kernel(0, 5, dep=2), kernel(1, 5), kernel(3, 40, stream=20)]
        ran = simulator.simulate(program(host, gpu))
        assert ran.host_ends[2] == 12 and ran.gpu_starts.tolist() == [0, 5, 12]


def test_what_is_still_held_at_the_end_is_run() -> None:
    assert simulator.simulate(program([call()], [kernel(0, 5, dep=0)])).gpu_ends.tolist() == [5]


def test_a_step_lasts_until_cpu_and_gpu_are_done() -> None:
    """The CPU begins steps at 0, 100, 200 and is done at 300, the GPU with what came before at 150, 190, 350."""
    host = [BEGINS, call(), ENDS] * 3
    one = program(host, [kernel(1), kernel(4), kernel(7)])
    starts = np.array([0.0, 0, 90, 100, 100, 190, 200, 200, 300])
    ran = simulator.Ran(starts, starts, np.zeros(3), np.array([150.0, 190, 350]))
    # From 150 to 200, and on to 350; the first step does not count.
    assert simulator.step_times(one, ran).tolist() == [50, 150]
    assert simulator.step_times(one, replace(ran, gpu_ends=np.array([150.0, 240, 20]))).tolist() == [90, 60]


def test_a_single_step_lasts_from_its_beginning() -> None:
    """What the GPU does from before counts for it."""
    one = program([call(), BEGINS, call(), ENDS], [kernel(0), kernel(2)])
    starts = np.array([0.0, 10, 15, 20])
    assert simulator.step_times(one, simulator.Ran(starts, starts, np.zeros(2), np.array([50.0, 60]))).tolist() == [50]


def test_a_run_is_held_against_what_was_measured() -> None:
    """Run again a step takes 10 ns, and kernels begin at 0, 10, 20; measured were 12 and starts of 1, 9, 26."""
    host = [BEGINS | {"start": 1000}, call(own=10.0, start=1000), ENDS | {"start": 1012},
            BEGINS | {"start": 1012}, call(own=10.0, start=1012), ENDS | {"start": 1024},
            BEGINS | {"start": 1024}, call(own=10.0, start=1024), ENDS | {"start": 1036}]  # fmt: skip
    gpu = [kernel(row, 1, start=start, end=start + 1) for row, start in ((1, 1001), (4, 1009), (7, 1026))]
    one = program(host, gpu)
    assert simulator.measured_times(one).host_starts.tolist() == [0, 0, 12, 12, 12, 24, 24, 24, 36]
    step, starts = simulator.simulation_error(one)
    assert step == pytest.approx(10 / 12 - 1) and starts == 1


# Rounding may set a time of the two ways to simulate so far apart, as a share of the program's length.
ROUNDING = 1e-13


def drawn(seed: int) -> Program:
    """Return a random program: some calls wait, queues are short, and operations wait for earlier and later ones."""
    draw = np.random.default_rng(seed)
    rows, count, streams = (int(draw.integers(*some)) for some in ((1, 40), (1, 60), (1, 4)))
    waits, later, overlaps = draw.choice([0, 0.05, 0.3]), draw.choice([0, 0, 0.05]), draw.choice([0, 0.3])
    host = []
    for _ in range(rows):
        wait = int(draw.choice([ALL, BEFORE, OPERATION, STREAM])) if draw.random() < waits else NOTHING
        target = int(draw.integers(streams + 1 if wait == STREAM else count))
        gap, own, tail = (float(draw.uniform(0, most)) for most in (9, 30, 5))
        host.append(call(gap, own, overlaps=draw.random() < overlaps, wait=wait, target=target, tail=tail))
    gpu = []
    for place, row in enumerate(np.sort(draw.integers(0, rows, count)).tolist()):
        low, high = (place + 1, place + 5) if draw.random() < later else (0, place)
        dep = int(draw.integers(low, high)) if high > low and draw.random() < max(0.3, float(low > 0)) else -1
        ns, latency, dep_gap = (float(draw.uniform(*some)) for some in ((0, 60), (-3, 20), (-6, 9)))
        gap, room = float(draw.choice([-np.inf, -5, 0, 2.5])), int(draw.integers(1, 20))
        gpu.append(kernel(row, ns, stream=int(draw.integers(streams)), latency=latency, gap=gap, room=room,
                          dep=min(dep, count - 1), dep_gap=dep_gap, gone=draw.random() < 0.2))  # fmt: skip
    return program(host, gpu)


def assert_equal_runs(one: Program) -> bool:
    """Hold stretches against rows one by one; return whether the program can be simulated by stretches."""
    rows, stretches = simulator._simulate_rows(one), simulator._Stretches(one).run()
    length = max(rows.host_ends.max(), rows.gpu_ends.max())
    for name, times in vars(rows).items() if stretches else ():
        assert getattr(stretches, name) == pytest.approx(times, rel=0, abs=ROUNDING * length), name
    return stretches is not None


def test_stretches_take_the_times_of_rows_one_by_one() -> None:
    programs = [drawn(seed) for seed in range(150)]
    done = [assert_equal_runs(one) for one in programs]
    later = [bool((one.gpu["dep"] >= one.gpu.index).any()) for one in programs]
    # Only what waits for later launches may have to be simulated row by row.
    assert all(can or waits for can, waits in zip(done, later, strict=True))
    assert 0.2 < np.mean(later) < 0.5 and any(can and waits for can, waits in zip(done, later, strict=True))


@pytest.mark.parametrize(
    "name", slow.only(["train", "two_processes/train.1", "two_processes/limited_by_gpu.0"], "two_processes/train.1")
)
def test_recorded_steps_and_their_changes_are_simulated_by_stretches(recording: Callable, name: str) -> None:
    (one,) = tables.read_programs(recording(f"nsys/{name}.sqlite"))
    for change in (lambda same: same, *predicted_gains.PANEL.values()):
        assert assert_equal_runs(change(one))
