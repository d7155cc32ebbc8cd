"""Loops whose launches differ from step to step, batched on a simulated device whose twin without the loop is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.fusion import gains
from profzoo.fusion.joining import NUMBER, OF, PLACE, STAYS, TOGETHER, WAITS
from profzoo.fusion.loops_by_step import find_loops_of_each_step
from profzoo.what_if import predicted_gains
from profzoo.what_if.kernel_matching import Operations
from profzoo.what_if.trace_events import KERNEL
from tests import simulated_waits
from tests.simulated import Act
from tests.simulated_waits import item, operator

# Before and behind the loop, each launch of a configuration of its own, as many as a real step has of each kind.
BEFORE, BEHIND = ([operator(3e3, group=first + place) for place in range(10)] for first in (0, 20))
LEAST = 12


def rounds(step: int) -> list[Act]:
    """A loop of 12 to 14 rounds: each finds how many rows it has, and works on so many, which is never the same."""
    return [
        act
        for number in range(LEAST + step % 3)
        for act in (operator(2e3, group=40), *item(), operator(2e3, group=100 + 20 * step + number))
    ]


def looped(step: int) -> list[Act]:
    return [*BEFORE, *rounds(step), *BEHIND]


def rows_of(step: int) -> pd.DataFrame:
    """The loop's launches in a step, of which the first stays."""
    count = 2 * (LEAST + step % 3)
    return pd.DataFrame(
        {NUMBER: 0, PLACE: len(BEFORE) + np.arange(count), OF: count + len(BEFORE) + len(BEHIND), "ns": 2e3, WAITS: 1}
        | {STAYS: (np.arange(count) == 0).astype(int)}
    )


@pytest.mark.parametrize("step", [1, 2])
def test_a_loop_of_differing_launches_gains_what_the_batched_step_does(step: int, tmp_path: Path) -> None:
    program, _ = simulated_waits.traced(looped, tmp_path)
    batched = [*BEFORE, operator(3e4), *BEHIND]
    after = gains.fuse_chains(Operations(program), rows_of(step), pd.Series({0: 3e4}))
    assert after is not None
    found = predicted_gains.predict_gain(program, after)
    measured = simulated_waits.step_ns(looped) / simulated_waits.step_ns(batched)
    assert measured > 2 and found.gain == pytest.approx(measured, rel=0.1)


def test_each_step_has_its_own_loop_and_one_launch_stays(tmp_path: Path) -> None:
    program, _ = simulated_waits.traced(looped, tmp_path)
    found, stays = find_loops_of_each_step(Operations(program), rows_of(0))
    steps = program.host["step"].to_numpy()[program.gpu["host"]]
    is_kernel = (program.gpu["kind"] == KERNEL).to_numpy()
    for step in range(program.steps):
        assert (found[is_kernel & (steps == step)] >= 0).sum() == 2 * (LEAST + step % 3)
        assert stays[steps == step].sum() == 1
    # Copies between the rounds' launches are the loop's.
    assert (found[~is_kernel] >= 0).all()


def test_without_a_step_of_that_size_nothing_is_found(tmp_path: Path) -> None:
    program, _ = simulated_waits.traced(looped, tmp_path)
    found, stays = find_loops_of_each_step(Operations(program), rows_of(0).assign(**{OF: 7}))
    assert (found == -1).all() and not stays.any()


def written_recurrence() -> list[Act]:
    """Three operators per time step."""
    return [act for number in range(LEAST) for act in (operator(4e3, group=40), *[operator(2e3, group=41)] * 2)]


@pytest.mark.parametrize("together", [0, 1])
def test_one_call_of_a_library_launches_without_operators_between(together: int, tmp_path: Path) -> None:
    launches = [*BEFORE, *written_recurrence(), *BEHIND]
    program, _ = simulated_waits.traced(launches, tmp_path)
    count = 3 * LEAST
    rows = pd.DataFrame(
        {NUMBER: 0, PLACE: len(BEFORE) + np.arange(count), OF: len(launches), WAITS: 0, TOGETHER: together}
        | {"ns": [4e3, 2e3, 2e3] * LEAST, STAYS: [1, 0, 0] * LEAST}
    )
    after = gains.fuse_chains(Operations(program), rows, pd.Series({0: 4e3 * LEAST}))
    assert after is not None
    found = predicted_gains.predict_gain(program, after)
    # One operator makes all launches; without it, each time step keeps an operator.
    kept = [operator(4e3, group=40) for _ in range(LEAST)]
    whole = [kept[0], *(replace(one, before=0.0) for one in kept[1:])]
    twin = [*BEFORE, *(whole if together else kept), *BEHIND]
    measured = simulated_waits.step_ns(launches) / simulated_waits.step_ns(twin)
    assert found.gain == pytest.approx(measured, rel=0.05)
