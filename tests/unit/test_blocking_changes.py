"""What the CPU no longer does when waits go: on programs written row by row, computed by hand."""

import numpy as np
import pytest

from profzoo.what_if import blocking_calls, graph_obstacles
from profzoo.what_if.blocking_changes import remove_blocking_calls
from profzoo.what_if.program import Program
from profzoo.what_if.simulator import simulate
from tests.written_programs import BEGINS, ENDS, call, kernel, program

ACROSS = {"kind": 1, "crossing": True}
SYNC = {"wait": blocking_calls.STREAM, "target": 7, "tail": 1.0}


def without(given: Program) -> Program:
    return remove_blocking_calls(given, graph_obstacles.find_step_waits(given))


def took(given: Program) -> float:
    return float(simulate(given).host_ends[-1])


def a_step(inward: bool) -> Program:
    """Three launches of 10 + 2; 500 of Python in two parts, and a copy of 4 that is waited for; a launch of 10 + 2."""
    host = [
        call(**BEGINS),
        *[call(10, 2) for _ in range(3)],
        call(480, 1),
        call(20, 4),
        call(1, 3, **SYNC),
        call(10, 2),
        call(**ENDS),
    ]
    work = [kernel(1, 5), kernel(2, 5), kernel(3, 5), kernel(5, 6, **ACROSS, inward=inward), kernel(7, 5)]
    given = program(host, work)
    return given.__class__(**{**vars(given), "gpu": given.gpu.assign(inward=[False, False, False, inward, False])})


def test_what_is_sent_in_each_step_goes_with_all_that_prepares_it() -> None:
    mended = without(a_step(inward=True))
    assert took(mended) == 4 * 12
    assert mended.gpu["gone"].tolist() == [False, False, False, True, False]


def test_of_a_value_that_is_read_only_the_operator_goes() -> None:
    """Of the 20 before the copy the 10 that launches usually take; the 480 before stay, as nothing ties them to it."""
    mended = without(a_step(inward=False))
    assert took(mended) == 4 * 12 + 480 + 1 + 20 - 10
    assert not mended.gpu["gone"].any()


def test_programs_of_earlier_files_do_not_say_which_way_copies_go() -> None:
    given = a_step(inward=True)
    old = given.__class__(**{**vars(given), "gpu": given.gpu.drop(columns="inward")})
    assert took(without(old)) == took(without(a_step(inward=False)))


@pytest.mark.parametrize("between", [0, 1])
def test_a_copy_belongs_to_the_wait_right_after_it_alone(between: int) -> None:
    host = [call(**BEGINS), call(10, 2), call(10, 4), *[call(0, 1)] * between, call(1, 3, **SYNC), call(**ENDS)]
    mended = without(program(host, [kernel(1, 5), kernel(2, 6, **ACROSS)]))
    assert np.isclose(mended.host["own"][2], 4.0 * between)
