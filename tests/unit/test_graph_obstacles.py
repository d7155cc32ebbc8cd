"""What prevents a CUDA graph of a step: on simulated steps of which that is known, and on a recorded one."""

from pathlib import Path

import pytest

from profzoo.what_if import graph_obstacles, tables
from tests import simulated, simulated_waits
from tests.simulated import Act
from tests.simulated_waits import item, operator

NETWORK = [operator(1e4) for _ in range(8)]


def found(inside: simulated_waits.Inside, folder: Path) -> list[tuple[str, float, int]]:
    made = simulated.simulate(simulated_waits.steps(inside, simulated_waits.TRACED))
    # Of several in one folder each has a file of its own.
    (program,) = tables.read_programs(simulated.record(made, folder / f"{len([*folder.iterdir()])}.sqlite"))
    return [(one.kind, one.per_step, one.steps) for one in graph_obstacles.find_trace_obstacles(program)]


def test_a_recorded_step_of_a_model_that_runs_as_a_graph_has_no_obstacle(recording) -> None:
    (program,) = tables.read_programs(recording("nsys/train.sqlite"))
    assert graph_obstacles.find_trace_obstacles(program) == []
    assert not graph_obstacles.find_step_waits(program).any()


@pytest.mark.parametrize("count", [1, 12])
def test_each_value_that_is_read_is_one_wait(count: int, tmp_path: Path) -> None:
    """Each is a copy and a synchronisation; the first of eight steps is not counted."""
    assert found([*NETWORK, *item() * count], tmp_path) == [("waits", count, 7)]


STALLS = [Act("free", 0, "forward", 2e3, 6e4), Act("allocate", 0, "forward", 2e3, 8e4)]


@pytest.mark.parametrize(
    "inside",
    [
        # Waits for the input; memory that is given back; a log every third step, and another launch in one of eight.
        [*item(part="transfer"), *NETWORK],
        [*NETWORK, *STALLS * 3],
        lambda step: [*NETWORK, *(item() if step % 3 == 1 else [])],
        lambda step: [*NETWORK, operator(1e4, group=step // 7)],
        # Threads of backward passes may launch the same in another order.
        lambda step: [*NETWORK, *[operator(1e4, group=1 + (step + one) % 3) for one in range(3)]],
    ],
)
def test_what_a_graph_can_do_without_is_no_obstacle(inside: simulated_waits.Inside, tmp_path: Path) -> None:
    assert found(inside, tmp_path) == []


def test_what_a_library_tries_is_no_obstacle(tmp_path: Path) -> None:
    """Two kernels are timed in each step, twice each, one of them another one each time; the same is chosen always."""

    def inside(step: int) -> list[Act]:
        wait = Act("sync", 0, "forward", 2e3, 2e3)
        tried = [wait, *[one for group in (1, 10 + step) for one in [operator(1e4, group=group), wait] * 2]]
        return [*NETWORK, *tried, operator(1e4, group=1), *NETWORK]

    assert found(inside, tmp_path) == []


def test_launches_that_differ_are_an_obstacle(tmp_path: Path) -> None:
    """Of another shape in each step: of seven steps that count six differ from any one."""
    assert found(lambda step: [*NETWORK, operator(1e4, group=step)], tmp_path) == [("differs", 6 / 7, 6)]
    reading = found(lambda step: [*NETWORK, *item(), operator(1e4, group=step)], tmp_path)
    assert reading == [("waits", 1, 7), ("steered", 6 / 7, 6)]
