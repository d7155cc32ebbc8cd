"""Loops: found by hand, and batched on a simulated device whose twin without the loop is known, as steps differ."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.fusion import gains, loops
from profzoo.fusion.gains import NUMBER, OF, PLACE, STAYS, TOGETHER, WAITS, find_loops_of_each_step
from profzoo.what_if import predicted_gains
from profzoo.what_if.predicted_gains import Operations
from profzoo.what_if.program import Program
from profzoo.what_if.trace_events import KERNEL
from tests import simulated_waits, slow
from tests.simulated import Act
from tests.simulated_waits import item, operator
from tests.written_programs import make_flow, work

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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return simulated_waits.traced(looped, tmp_path_factory.mktemp("traces"))[0]


@pytest.mark.parametrize("step", [1, 2])
def test_a_loop_of_differing_launches_gains_what_the_batched_step_does(step: int, program: Program) -> None:
    batched = [*BEFORE, operator(3e4), *BEHIND]
    after = gains.fuse_chains(Operations(program), rows_of(step), pd.Series({0: 3e4}))
    assert after is not None
    found = predicted_gains.predict_gain(program, after)
    measured = simulated_waits.step_ns(looped) / simulated_waits.step_ns(batched)
    assert measured > 2 and found.gain == pytest.approx(measured, rel=0.1)


def test_each_step_has_its_own_loop_and_one_launch_stays(program: Program) -> None:
    found, stays = find_loops_of_each_step(Operations(program), rows_of(0))
    steps = program.host["step"].to_numpy()[program.gpu["host"]]
    is_kernel = (program.gpu["kind"] == KERNEL).to_numpy()
    for step in range(program.steps):
        assert (found[is_kernel & (steps == step)] >= 0).sum() == 2 * (LEAST + step % 3)
        assert stays[steps == step].sum() == 1
    # Copies between the rounds' launches are the loop's.
    assert (found[~is_kernel] >= 0).all()
    # Without a step of that size nothing is found.
    found, stays = find_loops_of_each_step(Operations(program), rows_of(0).assign(**{OF: 7}))
    assert (found == -1).all() and not stays.any()


def written_recurrence() -> list[Act]:
    """Three operators per time step."""
    return [act for number in range(LEAST) for act in (operator(4e3, group=40), *[operator(2e3, group=41)] * 2)]


@pytest.mark.parametrize("together", slow.first([1, 0]))
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


BACK = {"direction": "backward"}


def of_member(name: str, *operators: Any, **more: Any) -> list[Any]:
    """Calls in a module: products of 8 rows of 4 by 4 x 4, and what works on 8 rows."""
    shapes = {"mm": [(8, 4), (4, 4)]}
    return [(one, shapes.get(one, [(8, 4)]), [(8, 4)], {"module": name, **more}) for one in operators]


def experts(count: int, *operators: str, picking: str = "index", owner: str = "moe") -> list[Any]:
    """A loop over modules of a list, whose owner picks rows before each."""
    return [call for number in range(count)
            for call in (*of_member(owner, picking), *of_member(f"{owner}.experts.{number}", *operators))]  # fmt: skip


PRODUCT_BYTES = 4 * (32 + 16 + 32)
HEAD, JOINED = ("mm", "_softmax", "mm"), ("cat", [(8, 4)] * 4, [(8, 16)], {"module": "moe"})


@pytest.mark.parametrize(
    ("calls", "pattern", "places", "times"),
    [
        # Four members with a pick each: eight calls in all; two picks of four are enough, one is not.
        (experts(4, "mm", "relu"), loops.EXPERTS, range(12), 4),
        (experts(5, "mm", "relu"), loops.EXPERTS, range(15), 5),
        (experts(3, "mm", "relu"), "", [], 0),
        (experts(4, "relu", "mul"), "", [], 0),
        (experts(4, "mm", picking="relu"), "", [], 0),
        (experts(4, "mm", picking="scatter_add_"), loops.EXPERTS, range(8), 4),
        ([*experts(2, "mm"), *of_member("moe.experts.2", "mm"), *of_member("moe.experts.3", "mm")], loops.EXPERTS, range(6), 4),
        ([*of_member("moe", "index"), *[call for at in range(4) for call in of_member(f"moe.experts.{at}", "mm")]], "", [], 0),
        # What the owner does between is a part, but nothing before or behind, other than picks within four calls.
        ([*of_member("moe", "index", "relu", "relu", "relu"), *experts(4, "mm")[1:], *of_member("moe", "relu", "index")],
         loops.EXPERTS, [0, *range(4, 11), 12], 4),
        ([*of_member("moe", "index", "relu", "relu", "relu", "relu"), *experts(4, "mm")[1:],
          *of_member("moe", "relu", "relu", "relu", "index")], loops.EXPERTS, range(5, 12), 4),
        ([*of_member("moe", "index"), *of_member("other", "index"), *experts(4, "mm")[1:]], loops.EXPERTS, [0, *range(2, 9)], 4),
        # The list of the whole network has the network as its owner.
        ([(*one[:3], {"module": one[3]["module"].replace("moe.experts", "layers").replace("moe", "(root)")})
          for one in experts(4, "mm")], loops.EXPERTS, range(8), 4),
        # Heads compute an attention each, and are put beside each other.
        ([*experts(4, *HEAD, picking="relu"), JOINED], loops.HEADS, range(1, 16), 4),
        ([*experts(4, *HEAD, picking="relu")], "", [], 0),
        ([*experts(4, "mm", "relu", picking="relu"), JOINED], "", [], 0),
        ([*experts(4, *HEAD, picking="relu"), ("cat", [(8, 4)] * 3, [(8, 12)], {"module": "moe"})], "", [], 0),
        ([*experts(4, *HEAD, picking="relu"), ("stack", [(8, 4)] * 4, [(8, 16)], {"module": "moe"})], "", [], 0),
        ([JOINED, *experts(4, *HEAD, picking="relu")], "", [], 0),
        # In one call of a module: a sequence with two products and a softmax, four times.
        (of_member("", *["relu"], *HEAD * 4, "mul"), loops.HEADS, range(1, 13), 4),
        (of_member("", *HEAD * 3), "", [], 0),
        (of_member("", *("mm", "_softmax") * 4), "", [], 0),
        (of_member("", *("mm", "_softmax", "_softmax", "mm") * 4), "", [], 0),
        # Rows that are looked for and multiplied: from the comparison to the last result.
        (of_member("", "mul", "eq", *("nonzero", "index", "mm", "index_add_") * 4, "relu"), loops.EXPERTS, range(1, 18), 4),
        (of_member("", "nonzero", "mm", *("nonzero", "index", "mm", "mm") * 3, "relu"), loops.EXPERTS, range(14), 4),
        (of_member("", "eq", *("nonzero", "mm") * 3, "nonzero", "relu", "nonzero", "mm"), loops.EXPERTS, range(11), 4),
        (of_member("", "eq", *("nonzero", "mm") * 3, "nonzero", "relu"), "", [], 0),
        (of_member("", "eq", *("nonzero", "relu") * 5), "", [], 0),
    ],
)  # fmt: skip
def test_loops_over_experts_and_heads(calls: list[Any], pattern: str, places: Iterable[int], times: int) -> None:
    """Batched, they move and compute as much in fewer launches; backward too, with what runs between."""
    chained = list(loops.find_loops(make_flow(*calls), frozenset()))
    assert [(one.pattern, [call.place for call in one.calls]) for one in chained] == [(pattern, list(places))] * bool(
        pattern
    )
    for one in chained:
        products = sum(calls[place][0] == "mm" for place in places)
        assert one.flop == products * 2 * 8 * 4 * 4 and one.fused_launches == len(one.calls) / times
        assert one.fused_bytes == one.bytes
        last = list(places)[-1]
        back = [("mm", [(8, 4), (4, 4)], [(8, 4)], BACK | {"sequence": at}) for at in (last, -1, last)]
        _, behind = loops.find_loops(make_flow(*calls, *back), frozenset())
        # One call between two is a part; five are more than belong to the loop.
        assert len(behind.calls) == 3 and behind.fused_launches == 3 / times and behind.flop == 3 * 2 * 8 * 16
        assert behind.fused_bytes == 3 * PRODUCT_BYTES
        _, behind = loops.find_loops(make_flow(*calls, back[0], *back[1:2] * 3, back[2]), frozenset())
        assert len(behind.calls) == 2 and behind.fused_bytes == 2 * PRODUCT_BYTES
    for more in (BACK, {"updates": True}):
        given = [(*one[:3], one[3] | more) for one in calls]
        assert not list(loops.find_loops(make_flow(*given), frozenset()))
    assert not list(loops.find_loops(make_flow(*calls), frozenset(range(len(calls)))))


def test_operations_of_products_by_hand() -> None:
    assert loops.product_flop(work("addmm", [(5,), (3, 7), (7, 5)], [(3, 5)])) == 2 * 3 * 5 * 7
    assert loops.product_flop(work("bmm", [(2, 3, 7), (2, 7, 5)], [(2, 3, 5)])) == 2 * 2 * 3 * 5 * 7
    for other in (
        work("mul", [(3, 7), (7, 5)], [(3, 5)]),
        work("mm", [(3, 7)], [(3, 5)]),
        work("mm", [(3, 7), (7, 5)]),
    ):
        assert loops.product_flop(other) == 0


@pytest.mark.parametrize(
    ("names", "right"),
    [
        ("", (0, 0, 0)), ("ab", (0, 0, 0)), ("aa", (0, 1, 2)), ("xaay", (1, 1, 2)), ("abab", (0, 2, 2)), ("ababa", (0, 2, 2)),
        ("xyabcabcabc", (2, 3, 3)), ("aaabab", (2, 2, 2)), ("abababcc", (0, 2, 3)), ("aabaab", (0, 3, 2)),
        # Sequences of up to 48 names are looked for.
        ([*map(str, range(48))] * 2, (0, 48, 2)), ([*map(str, range(49))] * 2, (0, 0, 0)),
    ],
)  # fmt: skip
def test_the_longest_repetition_by_hand(names: Sequence[str], right: tuple[int, int, int]) -> None:
    assert loops.longest_repetition(names) == right
