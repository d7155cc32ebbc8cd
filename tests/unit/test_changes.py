"""What each change makes of a program, on programs of a few rows, each column worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profzoo.range_names import PARTS
from profzoo.what_if import changes, graph_obstacles
from profzoo.what_if.changes import remove_blocking_calls
from profzoo.what_if.dependencies import ALL, BEFORE, NOTHING, OPERATION, STREAM
from profzoo.what_if.program import Program
from profzoo.what_if.simulator import simulate
from profzoo.what_if.trace_events import COPY
from tests.written_programs import BEGINS, ENDS, call, kernel, program

DATA, TRANSFER, FORWARD = (PARTS.index(name) + 1 for name in ("data", "transfer", "forward"))


def of(one: Program, table: str, column: str) -> list[Any]:
    return getattr(one, table)[column].tolist()


def chosen(one: Program, *places: int) -> np.ndarray:
    return np.isin(np.arange(len(one.gpu)), places)


def test_what_begins_as_another_runs_out_does_so_sooner_where_that_is_faster() -> None:
    deps = [(-1, -8), (0, -30), (0, 4), (1, -30), (-1, -8)]
    one = program([call()] * 5, [kernel(row, 60, dep=dep, dep_gap=gap) for row, (dep, gap) in enumerate(deps)])
    faster = changes.speed_up_kernels(one, chosen(one, 0, 4), 2)
    assert of(faster, "gpu", "ns") == [30, 60, 60, 60, 30]
    assert of(faster, "gpu", "dep_gap") == [-8, -15, 4, -30, -8]
    each = changes.speed_up_kernels(one, chosen(one, 0, 1), np.array([3.0, 4, 5, 6, 7]))
    assert of(each, "gpu", "ns") == [20, 15, 60, 60, 60]
    assert of(each, "gpu", "dep_gap") == [-8, -10, 4, -7.5, -8]


def test_what_is_left_of_fused_operations_goes_to_the_last_that_stays_on_their_stream() -> None:
    """A quarter of each goes: 15 and 22.5 ns are added to the first, of stream 20 nothing is before."""
    gpu = [
        kernel(0, 10),
        kernel(1, 8, stream=20),
        kernel(2, 20),
        kernel(3, 30),
        kernel(4, 40),
        kernel(5, 50, gone=True),
    ]
    one = program([call(9, 5, wait=ALL)] * 6, gpu)
    fused = changes.fuse(one, chosen(one, 1, 2, 3, 5), 0.25)
    assert of(fused, "gpu", "ns") == [47.5, 0, 0, 0, 40, 50]
    assert of(fused, "gpu", "gone") == [False, True, True, True, False, True]
    assert of(fused, "host", "own") == [5, 0, 0, 0, 5, 5] and of(fused, "host", "gap") == [9, 0, 0, 0, 9, 9]
    assert of(fused, "host", "wait") == [ALL, *[NOTHING] * 3, ALL, ALL]
    # Unless another share is told all of it goes.
    assert of(changes.fuse(one, chosen(one, 2)), "gpu", "ns") == [10, 8, 0, 30, 40, 50]


def test_a_graph_of_which_operations_stay_is_still_launched() -> None:
    one = program([call(9, 5)] * 2, [kernel(0, 10), kernel(0, 20), kernel(1, 30)])
    assert of(changes.fuse(one, chosen(one, 0)), "host", "own") == [5, 5]
    assert of(changes.fuse(one, chosen(one, 0, 1)), "host", "own") == [0, 5]


def test_nothing_runs_out_for_what_waits_for_one_that_is_gone() -> None:
    gpu = [
        kernel(0, 10),
        kernel(1, 9, dep=0, dep_gap=-4),
        kernel(2, 9, dep=0, dep_gap=6),
        kernel(3, 9, dep=1, dep_gap=-4),
    ]
    one = program([call()] * 4, gpu)
    assert of(changes.fuse(one, chosen(one, 0)), "gpu", "dep_gap") == [0, 0, 6, -4]


def test_calls_that_lead_to_a_launch_go_with_it() -> None:
    """Those that wait, those of another launch, of another step, and those behind the last launch stay."""
    waits = call(1, 1, wait=ALL)
    host = [BEGINS, call(1, 1), call(1, 1), waits, call(1, 1), call(1, 1), ENDS | {"gap": 1.0}, BEGINS, call(1, 1),
            call(1, 1), call(1, 1)]  # fmt: skip
    one = program(host, [kernel(1), kernel(4), kernel(9)])
    # The second launch goes, with the call two before it.
    fused = changes.fuse(one, chosen(one, 1))
    assert of(fused, "host", "own") == [0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 1]
    assert of(fused, "host", "gap") == [0, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1]
    # The third does, with the one before it, and not with those of the step before.
    assert of(changes.fuse(one, chosen(one, 2)), "host", "own") == [0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1]


def fused_gaps(gaps: list[float], place: int, read: float = 0.0) -> list[float]:
    """What is between launches as that of this place goes, before which the input is read for so long."""
    one = program([call(gap, input=read if at == place else 0.0) for at, gap in enumerate(gaps)],
                  [kernel(at) for at in range(len(gaps))])  # fmt: skip
    return of(changes.fuse(one, chosen(one, place)), "host", "gap")


def test_what_is_far_out_among_operators_is_other_work() -> None:
    """Of 50, 60, 70, 80 and 400 us the middle half is 60 to 80: up to 80 + 3 x 20 = 140 us are an operator's."""
    assert fused_gaps([5e4, 6e4, 7e4, 8e4, 4e5], 4)[-1] == pytest.approx(4e5 - 1.4e5)
    assert fused_gaps([5e4, 6e4, 7e4, 8e4, 4e5], 3)[-2:] == pytest.approx([0, 4e5])
    # Reading the input is none of it, and stays.
    assert fused_gaps([5e4, 6e4, 7e4, 8e4, 4.4e5], 4, 4e4)[-1] == pytest.approx(4e4 + 4e5 - 1.4e5)
    # Where they are all alike it is up to 100 us.
    assert fused_gaps([5e4, 5e4, 5e4, 5e4, 4e5], 4)[-1] == pytest.approx(3e5)
    assert fused_gaps([5e4, 5e4, 5e4, 5e4, 9e4], 4)[-1] == 0


def test_what_is_between_other_calls_is_the_next_launchs_too() -> None:
    """150 us before a call and 50 before the launch after it are 200, of which 100 us, a half of each, are its own."""
    host = [call(1e4), call(1e4), call(1e4), call(1e4), call(1.5e5), call(5e4)]
    one = program(host, [kernel(row) for row in (0, 1, 2, 3, 5)])
    assert of(changes.fuse(one, chosen(one, 4)), "host", "gap") == pytest.approx([1e4] * 4 + [7.5e4, 2.5e4])


STEP = [BEGINS | {"gap": 7.0}, call(3e3, 4e3, part=TRANSFER), call(5e3, 6e3, part=FORWARD), call(200, 300),
        call(5e3, 6e3, part=FORWARD), call(10, 20, wait=ALL, tail=9.0), ENDS | {"gap": 50.0}]  # fmt: skip


def test_a_step_becomes_one_launch_in_the_place_of_its_first_after_the_input() -> None:
    """2.5 us and 1 ns for each of two nodes, of which what is gone is none; the second step launches one."""
    gpu = [kernel(1, 10, kind=COPY, latency=4e3, gap=5e3), kernel(2, 20, latency=6e3, gap=1.1e3),
           kernel(4, 30, latency=6e3, gap=900, dep=1, dep_gap=1.2e3), kernel(4, 40, latency=5, gap=3e3, gone=True),
           kernel(8, 10, kind=COPY, latency=4e3, gap=5e3), kernel(9, 20, latency=6e3, gap=1.1e3)]  # fmt: skip
    graph = changes.capture_as_graph(program(STEP * 2, gpu, after=1_800))
    assert of(graph, "host", "gap") == [7, 3e3, 0, 0, 0, 0, 0] * 2
    assert of(graph, "host", "wait") == ([NOTHING] * 5 + [ALL, NOTHING]) * 2
    assert of(graph, "gpu", "host") == [1, 2, 2, 4, 8, 9]
    assert of(graph, "gpu", "latency") == [4e3, 2_502 + 1_800, 0, 5, 4e3, 2_501 + 1_800]
    assert of(graph, "gpu", "gap") == [5e3, 1e3, 900, 3e3, 5e3, 1e3]
    assert of(graph, "gpu", "dep_gap") == [0, 0, 1e3, 0, 0, 0]
    assert of(graph, "host", "own") == [0, 4e3, 2_502, 0, 0, 0, 0, 0, 4e3, 2_501, 0, 0, 0, 0]


def test_nodes_are_as_far_apart_as_asked_and_a_step_without_launches_has_no_graph() -> None:
    steps = [*STEP, BEGINS, call(8, 9), ENDS]
    gpu = [kernel(2, 20, gap=1.1e3), kernel(4, 30, gap=500)]
    graph = changes.capture_as_graph(program(steps, gpu), node_gap_ns=700)
    assert of(graph, "gpu", "gap") == [700, 500]
    assert of(graph, "host", "own")[7:] == [0, 0, 0] and of(graph, "host", "gap")[7:] == [0, 0, 0]


def test_what_is_launched_sooner_comes_before_the_input_that_was_launched_between() -> None:
    """The second kernel is launched with the first: what points to it, and to the copy, does so again."""
    host = [BEGINS, call(1, 1), call(1, 1, part=TRANSFER), call(1, 1), call(wait=OPERATION, target=1),
            call(wait=BEFORE, target=2), call(wait=STREAM, target=2), ENDS]  # fmt: skip
    gpu = [kernel(1, 1), kernel(2, 2, kind=COPY, dep=0), kernel(3, 3, dep=1)]
    one = program(host, gpu)
    graph = changes.capture_as_graph(one)
    assert list(graph.gpu) == list(one.gpu) and list(graph.gpu.index) == [0, 1, 2]
    assert of(graph, "gpu", "ns") == [1, 3, 2] and of(graph, "gpu", "host") == [1, 1, 2]
    assert of(graph, "gpu", "dep") == [-1, 2, 0]
    assert of(graph, "host", "target")[4:7] == [2, 1, 2]


def test_nodes_of_a_trace_are_as_far_apart_as_their_median() -> None:
    node = {"node": True, "gap": -np.inf, "dep": 0}
    follow = [kernel(0, dep_gap=gap, **node) for gap in (0.0, 600.0, 900.0, -5.0)]
    others = [kernel(0, dep_gap=7e3, **(node | other)) for other in ({"node": False}, {"gap": 1.0}, {"dep": -1})]
    assert changes.node_gap(program([call()], follow + others)) == 600
    assert changes.node_gap(program([call()], others)) == 1_000


def test_a_batch_that_is_there_takes_no_loading_but_is_copied() -> None:
    """What the loading range gives the GPU stays with its call, and so does what the copy takes."""
    host = [BEGINS, call(50, 5, part=DATA, wait=ALL, input=50, data=50), call(8, 6, part=DATA, wait=ALL, input=8, data=8),
            call(50, 7, part=TRANSFER, wait=ALL, input=50, data=20), call(50, 5, input=90), ENDS | {"gap": 9.0}]  # fmt: skip
    one = program(host, [kernel(2, 3), kernel(3, 4, kind=COPY), kernel(4, 5)])
    ready = changes.prefetch_input(one)
    assert of(ready, "host", "gap") == [0, 0, 0, 30, 50, 9] and of(ready, "host", "own") == [0, 0, 6, 7, 5, 0]
    assert of(ready, "host", "wait") == [NOTHING, NOTHING, ALL, ALL, NOTHING, NOTHING]
    assert of(ready, "host", "input") == [0, 0, 0, 30, 50, 0] and sum(of(ready, "host", "data")) == 0
    assert of(ready, "gpu", "ns") == [3, 4, 5] and not any(of(ready, "gpu", "gone"))
    # 83 ns are loading. A third of each row stays of 27.7 that receiving takes, and all of it where that takes longer.
    assert changes.loading_ns(one) == 83
    kept = changes.prefetch_input(one, 83 / 3)
    assert kept.host["gap"].tolist() == pytest.approx([0, 50 / 3, 8 / 3, 30 + 20 / 3, 50, 9])
    assert changes.loading_ns(kept) == pytest.approx(83 / 3) and kept.host["own"].iloc[1] == pytest.approx(5 / 3)
    assert of(changes.prefetch_input(one, 100.0), "host", "gap") == of(one, "host", "gap")
    # Programs of earlier versions do not tell loading from copying.
    old = replace(one, host=one.host.drop(columns="data"))
    assert of(changes.prefetch_input(old), "host", "gap")[:5] == [0] * 5


def test_loading_is_that_of_the_steps_that_count() -> None:
    steps = [row for ns in (9, 2, 4) for row in (BEGINS, call(ns, part=TRANSFER, input=ns, data=ns), ENDS)]
    assert changes.loading_ns(program(steps, [])) == 3 and changes.loading_ns(program(steps[:3], [])) == 9


def test_the_input_is_read_and_copied() -> None:
    assert [PARTS[number - 1] for number in changes.IN_INPUT] == ["data", "transfer"]


def test_a_launch_more_takes_the_cpu_what_launches_do() -> None:
    """12, 34 and 29 ns in the mean, in the median of the calls alone 4; neither where others overlap or wait."""
    host = [BEGINS, call(10, 2), call(30, 4), call(20, 9), call(500, 500, overlaps=True), call(500, 500, wait=1),
            call(700, 700)]  # fmt: skip
    one = program(host, [kernel(row, 1) for row in range(1, 6)] + [kernel(5, 1, node=True)])
    more = np.array([1.0, 2, 0, 0, 0, 3])
    added = changes.add_launches(one, more, 100)
    assert of(added, "host", "gap") == [0, 10 + 25, 30 + 50, 20, 500, 500, 700]
    assert of(added, "gpu", "ns") == [101, 201, 1, 1, 1, 301]
    assert of(changes.add_launches(one, more, 0, within=True), "host", "gap")[:4] == [0, 10 + 4, 30 + 8, 20]
    # Where no launch tells it takes nothing.
    silent = program([call(5, 5, overlaps=True)], [kernel(0, 1)])
    assert of(changes.add_launches(silent, np.array([3.0]), 1), "host", "gap") == [5]


def test_allocations_that_are_removed_take_no_time_nor_wait() -> None:
    host = [call(5, 6, allocates=allocates, wait=ALL, tail=7) for allocates in (True, False)]
    lean = changes.remove_allocations(program(host, []))
    found = {name: of(lean, "host", name) for name in ("gap", "own", "tail", "wait")}
    assert found == {"gap": [5, 5], "own": [0, 6], "tail": [0, 7], "wait": [NOTHING, ALL]}


def times(*kernels: int, waits: bool = True) -> list[Any]:
    """Rows of a host that launches these configurations, one call each, and then waits for all of them."""
    return [*(("launch", number) for number in kernels), *([("wait", 0)] if waits else [])]


def steps_of(*given: list[Any]) -> Program:
    """A program of steps of such rows; a copy to the host has the number of no kernel."""
    host, gpu = [], []
    for rows in given:
        host.append(BEGINS)
        for kind, number in rows:
            if kind == "launch":
                gpu.append(kernel(len(host), 10, **(ACROSS if number < 0 else {"pack0": number})))
            host.append(call(9, 5, **({"wait": ALL} if kind == "wait" else {})))
        host.append(ENDS)
    return changes.mark_tuning(program(host, gpu))


def search(first: int, plain: int = 1) -> list[Any]:
    """What a library does that chooses one of three kernels, and another launch before and behind it."""
    tried = [row for one in ([first], [first + 1, 7], [first + 2]) for row in times(*one) * 2]
    return [*times(plain, waits=True), *tried, *times(first + 1, 7, plain, waits=False)]


def tried_by(one: Program) -> list[list[int]]:
    """Configurations of what a tuner launches, by step."""
    steps = one.host["step"].to_numpy()[one.gpu["host"]]
    return [one.gpu.loc[one.gpu["tried"] & (steps == step), "pack0"].tolist() for step in range(one.steps)]


def test_kernels_that_a_library_times_one_by_one_are_a_tuners() -> None:
    """Kernel 7 belongs to an algorithm of any shape, and to what is chosen; kernel 1 is not tried."""
    found = steps_of(*(search(10 * step) for step in range(1, 4)), times(1, 21, 7, waits=False))
    tried = [[first, first, first + 1, 7, first + 1, 7, first + 2, first + 2] for first in (10, 20, 30)]
    assert tried_by(found) == [*tried, []]
    # The wait before the first is the tuner's, and all calls up to what is chosen: 8 launches and 7 waits.
    assert found.host["tries"].groupby(found.host["step"]).sum().tolist() == [15, 15, 15, 0]


def test_the_first_launch_of_a_tuner_may_come_before_any_wait_of_its_own() -> None:
    """As of Triton: a launch, a wait, and then more of the same between waits."""
    triton = [*times(1, 50), *times(50, 50), *times(50, 50, 50), *times(51), *times(51, 51), *times(50, waits=False)]
    assert tried_by(steps_of(triton, *[times(1, 50)] * 3)) == [[50] * 6 + [51] * 3, [], [], []]


ALTERNATING = {
    "an optimizer in every fourth step": [times(1, 2, 3), times(1, 2, 3), times(1, 2, 3), times(1, 2, 3, 4, 5, 6)],
    "kernels at the end of a step and the beginning of the next": [
        [*times(100 + step), *times(step), *times(step), *times(step, -1), *times(101 + step)] for step in range(4)
    ],
    "searches that half of the steps have": [search(10), search(10), times(1), times(1)],
    "an evaluation now and then": [times(1, 2), times(1, 2), [*times(1, 2), *times(1), *times(1), *times(1)], times(1, 2)],
    "as many blocks as chance will": [times(*[1, 2] * count, 3) for count in (1, 4, 2, 3)],
    "values that are read within blocks of any shape": [
        [row for block in (0, 0, 1, 1) for row in times(10 * step + block, -1)] + times(10 * step, waits=False)
        for step in range(4)
    ],
    "stages that each step times": [[*times(1), *times(1), *times(2), *times(2), *times(1, waits=False)]] * 4,
    "blocks of any shape that are timed forward alone": [
        [row for block in (0, 0, 1, 1) for row in times(10 * step + block)] + times(10 * step + 5) for step in range(4)
    ],
    "one kernel of any shape that is timed": [[*times(step), *times(step), *times(step, waits=False)] for step in range(4)],
    "large blocks of any shape that are timed": [
        [row for block in (0, 0, 10, 10) for row in times(*range(30 * step + block, 30 * step + block + 9))]
        + times(*range(30 * step, 30 * step + 9), waits=False)
        for step in range(4)
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", ALTERNATING.values(), ids=ALTERNATING)
def test_programs_that_alternate_or_wait_have_no_tuner(steps: list[list[Any]]) -> None:
    found = steps_of(*steps)
    assert not found.gpu["tried"].any() and not found.host["tries"].any()
    assert changes.remove_tuning(found) is found


def test_freeing_memory_within_blocks_is_not_timing_them() -> None:
    found = steps_of(*(search(10 * step) for step in range(1, 4)), [])
    freeing = found.host.assign(allocates=found.host["wait"] == ALL).drop(columns="tries")
    assert not changes.mark_tuning(replace(found, host=freeing)).gpu["tried"].any()


def test_a_step_without_its_tuner_has_what_the_tuner_chose() -> None:
    """Of 300 before the chosen kernel 9 stay, as before other launches; a copy of the input between stays as it is."""
    one = steps_of([*search(10), ("wait", 0)], *[times(1, 2, waits=False)] * 2)
    rows, calls = np.arange(len(one.host)), one.gpu["host"].to_numpy()
    chosen_call = calls[np.flatnonzero(one.gpu["pack0"] == 11)[-1]]
    # Memory is allocated behind the search, and in a step without one; the fourth row makes input.
    allocates = np.isin(rows, [chosen_call + 2, len(one.host) - 2])
    gap = np.where(rows == chosen_call, 2.0, np.where(rows == 6, 290.0, one.host["gap"]))
    host = one.host.assign(allocates=allocates, gap=gap, input=np.where(rows == 6, 90.0, 0.0))
    lean = changes.remove_tuning(replace(one, host=host))
    assert lean.gpu.loc[~lean.gpu["gone"], "pack0"].tolist() == [1, 11, 7, 1, 1, 2, 1, 2]
    assert lean.gpu.loc[lean.gpu["gone"], "ns"].eq(0).all() and lean.gpu["gone"].sum() == 8
    tries = one.host["tries"].to_numpy()
    assert lean.host.loc[tries, ["gap", "own"]].sum().tolist() == [90, 0] and of(lean, "host", "gap")[chosen_call] == 9
    assert [of(lean, "host", "own")[row] for row in np.flatnonzero(allocates)] == [0, 5]
    # The program's own wait is left.
    assert lean.host["wait"].eq(ALL).sum() == 1 and lean.host["wait"][tries].eq(NOTHING).all()
    # Where less was spent than an operator takes, no more stays.
    short = changes.remove_tuning(replace(one, host=one.host.assign(gap=np.where(tries, 0.0, gap))))
    assert of(short, "host", "gap")[chosen_call] == 2


def test_input_within_a_search_is_not_the_tuners() -> None:
    one = steps_of(*(search(10 * step) for step in range(1, 4)), [])
    rows = np.flatnonzero(one.host["tries"])[3:5]
    part = one.host.assign(part=np.where(np.isin(np.arange(len(one.host)), rows), TRANSFER, 0)).drop(columns="tries")
    assert not changes.mark_tuning(replace(one, host=part)).host["tries"][rows].any()


def test_what_a_tuner_takes_says_nothing_of_other_operators() -> None:
    """Its calls take 900 each, others 14; and an operator's time is at most 0.1 ms here, whatever the tuner's are."""
    one = steps_of(*(search(10 * step) for step in range(1, 5)))
    slow = replace(one, host=one.host.assign(gap=np.where(one.host["tries"], 895.0, 9.0)))
    more = changes.add_launches(slow, np.where(slow.gpu["tried"], 0.0, 1.0), 0)
    added = (more.host["gap"] - slow.host["gap"])[~slow.host["tries"] & slow.host["launches"]]
    # The call of what is chosen has the wait before it in the trace, and its own gap alone counts.
    assert added.tolist() == [14.0] * len(added)
    last = slow.gpu["host"].iloc[-1]
    long = replace(
        slow,
        host=slow.host.assign(
            gap=np.where(slow.host["tries"], 1e7, np.where(np.arange(len(slow.host)) == last, 4e5, 9.0))
        ),
    )
    assert changes.fuse(long, chosen(long, len(long.gpu) - 1)).host["gap"][last] == pytest.approx(3e5)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: changes.speed_up_kernels(one, np.ones(len(one.gpu), dtype=bool), 2),
        lambda one: changes.fuse(one, np.ones(len(one.gpu), dtype=bool)),
        changes.capture_as_graph,
        lambda one: changes.add_launches(one, np.ones(len(one.gpu)), 5),
        changes.remove_allocations,
        lambda one: without(one),
    ],
)
def test_no_change_but_its_own_reaches_a_tuner(change: Any) -> None:
    one = steps_of(*(search(10 * step) for step in range(1, 5)))
    one = replace(one, host=one.host.assign(allocates=one.host["tries"] & one.host["launches"]))
    changed = change(one)
    for table, flags, columns in (
        ("gpu", "tried", ["ns", "gone", "host", "latency"]),
        ("host", "tries", ["gap", "own", "wait"]),
    ):
        before, after = (getattr(own, table) for own in (one, changed))
        assert before[flags].any()
        assert (
            after.loc[after[flags], columns].to_numpy().tolist()
            == before.loc[before[flags], columns].to_numpy().tolist()
        )


def test_making_and_loading_code_stays_in_every_step_that_does_it() -> None:
    """Of 5 ms before a call that loads code, 0.1 ms are an operator's; a graph and fusing leave the rest, and its call."""
    loads = [False, False, True, False, False]
    host = [BEGINS, call(9, 5), call(5e6, 2e3, input=1e3), call(9, 5), ENDS]
    one = program(host, [kernel(1, 10), kernel(3, 10)])
    one = replace(one, host=one.host.assign(loads=loads))
    assert of(one, "host", "loads") == loads and changes.making_ns(one).tolist() == [0, 0, 5e6 - 1e3 - 1e5, 0, 0]
    for changed in (changes.capture_as_graph(one), changes.fuse(one, chosen(one, 1))):
        assert of(changed, "host", "gap")[2:4] == pytest.approx([5e6 - 1e5, 0]) and of(changed, "host", "own")[2] == 2e3


def test_communication_waits_for_what_was_before_it_and_nothing_for_it() -> None:
    talks = {"talking": True}
    gpu = [kernel(0), kernel(0, **talks), kernel(0, **talks), kernel(0, dep=1), kernel(0, dep=0, **talks),
           kernel(0, stream=20), kernel(0, stream=30, **talks), kernel(0, dep=5), kernel(0, dep=6, **talks),
           kernel(0, **talks)]  # fmt: skip
    apart = changes.overlap_communication(program([call()], gpu))
    own = changes.APART
    assert own < 0 and of(apart, "gpu", "stream") == [7, own, own, 7, own, 20, own, 7, own, own]
    assert of(apart, "gpu", "dep") == [-1, 0, 0, -1, 0, -1, -1, 5, 6, 7]


def test_a_faster_cpu_is_faster_in_what_of_the_way_to_the_gpu_is_its_call() -> None:
    """Of 10 ns 6 are the call's, of 4 all, and of one that begins before its call none."""
    one = program(
        [call(8, 6, input=2, library=4)] * 3, [kernel(0, latency=10), kernel(1, latency=4), kernel(2, latency=-2)]
    )
    faster = changes.speed_up_host(one, 2)
    assert of(faster, "gpu", "latency") == [7, 2, -2]
    assert [of(faster, "host", name)[0] for name in ("gap", "own", "input", "library")] == [4, 3, 1, 2]


ACROSS = {"kind": 1, "crossing": True}


SYNC = {"wait": STREAM, "target": 7, "tail": 1.0}


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
