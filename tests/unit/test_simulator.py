"""When rows of a program and operations on the GPU begin and end in a run, each worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from profzoo.what_if import simulator
from profzoo.what_if.dependencies import ALL, BEFORE, OPERATION, STREAM
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


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_simulated_together_take_the_times_of_rows_one_by_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = int(draw.integers(3, 60))
    waits = draw.choice([0, ALL, BEFORE, OPERATION, STREAM], rows, p=[0.8, 0.05, 0.05, 0.05, 0.05])
    host = [
        call(
            int(draw.integers(0, 9)),
            int(draw.integers(0, 30)),
            overlaps=bool(row and draw.random() < 0.3),
            wait=int(wait),
            target=int(draw.integers(0, 2 if wait == STREAM else 20)),
            tail=int(draw.integers(0, 5)),
        )
        for row, wait in enumerate(waits)
    ]
    gpu = [
        kernel(
            row,
            int(draw.integers(0, 60)),
            stream=int(draw.integers(0, 2)),
            latency=int(draw.integers(0, 20)),
            gap=int(draw.integers(0, 3)),
            dep_gap=int(draw.integers(0, 9)),
            room=int(draw.integers(1, 9)),
            gone=bool(draw.random() < 0.2),
        )
        for row in sorted(draw.integers(0, rows, max(rows, 25)).tolist())
    ]
    gpu = [
        one | {"dep": int(draw.integers(-1, place)) if draw.random() < 0.2 and place else -1}
        for place, one in enumerate(gpu)
    ]
    drawn = program(host, gpu)
    one_by_one, together = simulator._simulate_rows(drawn), simulator._Together(drawn).run()
    for name in ("host_starts", "host_ends", "gpu_starts", "gpu_ends"):
        assert getattr(together, name) == pytest.approx(getattr(one_by_one, name)), name
