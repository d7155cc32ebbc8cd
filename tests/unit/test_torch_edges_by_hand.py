"""What is read of traces of torch.profiler at the edges: numbers that are too large, none at all, the first of all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profzoo.errors import DataError
from profzoo.tools.torch import autograd_links, graph_replays, host_calls, launch_costs, losses, nesting, owners
from profzoo.tools.torch import trace as torch_trace
from tests.unit.test_losses import found, long, step
from tests.unit.test_torch_by_hand import called, node, of, part, ran, span


@pytest.mark.parametrize(
    ("event", "read"),
    [
        (called(1, 2**53 - 1), True), (called(1, 2**53), False), (called(1, 1 - 2**53), True), (called(1, -(2**53)), False),
        (called(1, True), False), (called(1, 1.0), False), (called(1, 3, operator=2**53), False),
        (span("a", 1, 1, **{"Sequence number": 2**53}), False), (span("a", 1, 1, **{"Fwd thread id": 2**53}), False),
        (span("a", 1, 1, **{"Sequence number": "3"}), False), (span("a", 1, 1, **{"Fwd thread id": 2**53 - 1}), True),
        (span("a", 1, 0), True), (span("a", 1, -0.001), False), (span("a", 2**53, 0), False), (span("a", 0, "1"), False),
        ({**span("a", 1, 1), "name": 3}, False), ({**span("a", 1, 1), "args": []}, False), ([], False),
        ({**span("a", 1, 1), "cat": 3}, False), ({"cat": "python_function"}, True), ({}, True),
        # Calls and operators may have nothing to tell; what ran on the GPU has to.
        ({"cat": "cuda_runtime", "name": "c", "ts": 1, "dur": 1}, True), ({"cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, True),
        ({"cat": "kernel", "name": "k", "ts": 1, "dur": 1}, False), ({"cat": "gpu_memset", "name": "k", "ts": 1, "dur": 1}, False),
        ({"cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}}, True),
    ],
)  # fmt: skip
def test_which_events_are_sound(event: Any, read: bool) -> None:
    if read:
        of(event)
        return
    with pytest.raises(DataError, match="an event is"):
        of(event)


def test_times_end_where_two_of_them_fit_into_64_bits() -> None:
    """2^62 ns: in us that is 4,611,686,018,427,387.904, to which the nearest float is a whole number."""
    latest = 4_611_686_018_427_388
    assert of(span("a", latest, 0)).operators["start"].tolist() == [latest * 1000]
    assert of(span("a", -latest, 0)).operators["start"].tolist() == [-latest * 1000]
    assert of(span("a", latest - 2, 2)).operators["ns"].tolist() == [2000]
    for at, ns in ((latest + 1, 0), (-latest - 1, 0), (latest - 2, 4)):
        with pytest.raises(torch_trace.TimesError):
            of(span("a", at, ns))


def test_what_an_event_does_not_tell_is_none() -> None:
    kernel = {"cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}}
    launches = of(kernel).launches
    names = ("correlation", "external", "stream", "queue", *torch_trace.SIZES)
    assert [launches[name].tolist() for name in names] == [[-1]] * 11
    bare = {"name": "c", "ts": 1, "dur": 1}
    made = of({"cat": "cuda_driver", **bare}).calls
    assert made["correlation"].tolist() == [-1] and made["external"].tolist() == [-1]
    operators = of({"cat": "cpu_op", **bare}).operators
    assert [operators[name].tolist() for name in ("sequence", "external", "inputs", "forward_thread")] == [
        [-1],
        [-1],
        [-1],
        [0],
    ]


@pytest.mark.parametrize(
    ("size", "read"),
    [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -1), (1 - 2**31, 1 - 2**31), (-(2**31), -1), ("7", -1), (True, -1), (1.0, -1)],
)  # fmt: skip
def test_sizes_of_32_bits_are_read(size: Any, read: int) -> None:
    launches = of(ran("k", 1, 1, 3, grid=[size, 2, 3], block=[1, 1, size], stream=size)).launches
    assert [launches[name].tolist() for name in ("grid_x", "grid_y", "block_z", "stream")] == [
        [read],
        [2],
        [read],
        [read],
    ]


def test_three_sizes_are_a_grid() -> None:
    for given in ([1, 2], [1, 2, 3, 4], "abc", None):
        launches = of(ran("k", 1, 1, 3, grid=given)).launches
        assert [launches[name].tolist() for name in torch_trace.SIZES[:3]] == [[-1]] * 3


@pytest.mark.parametrize(
    ("highest", "width"), [(0, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 4), (2**31 - 1, 4), (2**31, 8)]
)
def test_columns_are_as_wide_as_their_numbers(highest: int, width: int) -> None:
    """Of a length in ns, which is told in us; a start is as wide as its sum with any of these."""
    operators = of(span("a", 0.001, highest / 1000), span("b", 0.002, 0)).operators
    assert operators["ns"].dtype.itemsize == width and operators["ns"].tolist() == [highest, 0]
    assert operators["start"].dtype.itemsize == 8 and (operators["start"] + operators["ns"]).tolist() == [
        1 + highest,
        2,
    ]


@pytest.mark.parametrize(("lowest", "width"), [(-128, 1), (-129, 2), (-32_768, 2), (-32_769, 4)])
def test_columns_are_as_wide_as_their_lowest_number(lowest: int, width: int) -> None:
    correlation = of(called(1, lowest)).calls["correlation"]
    assert correlation.dtype.itemsize == width and correlation.tolist() == [lowest]


def test_only_links_that_lead_from_an_operator_to_another_are_read() -> None:
    def link(**given: Any) -> dict[str, Any]:
        return {"ph": "s", "cat": "fwdbwd", "id": 3, "tid": 1, "ts": 1.5, **given}

    wrong = [link(ph="t"), link(ts="1"), link(id=3.0), link(id=2**53), link(ts=None)]
    assert of(*wrong).links["id"].tolist() == [] and of(link(), *wrong).links["id"].tolist() == [3]


def test_which_event_of_a_file_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for before, number in (("", 0), ('{"name": "a"}, ', 1)):
        path.write_text(f'{{"traceEvents": [{before}{{"name" 3}}]}}')
        with pytest.raises(DataError, match=f"event {number} is no JSON"):
            torch_trace.read_trace(path)
    path.write_text(json.dumps({"traceEvents": [span("a", 0, 1), span("b", 2**52, 2**52)]}))
    with pytest.raises(DataError, match="event 1 lasts"):
        torch_trace.read_trace(path)
    path.write_text(json.dumps({"traceEvents": [span("a", 0, 1), 7]}))
    with pytest.raises(DataError, match="event 1 is 7, which is not read here"):
        torch_trace.read_trace(path)


def test_nothing_of_an_empty_trace() -> None:
    trace = of()
    assert (
        len(nesting.classify_operators(trace))
        == len(nesting.nest_operators(trace).parent)
        == len(autograd_links.find_forward_operators(trace))
        == 0
    )
    assert (
        len(host_calls.launching_calls(trace))
        == len(graph_replays.find_replayed(trace))
        == len(graph_replays.find_capturing_operators(trace))
        == 0
    )
    assert (
        host_calls.count_steps(trace) == 0
        and losses.find_impossible(trace) is None
        and losses.find_losses(trace).told() == []
    )
    assert (
        owners.tabulate_launches(trace).empty
        and owners.tabulate_operators(trace).empty
        and owners.tabulate_modules(trace).empty
    )


def test_outside_of_all_ranges_there_is_no_name_and_no_number() -> None:
    times = np.array([4000, 5000, 14_999, 15_000])
    for trace, name, number in ((of(span("a", 1, 1)), [-1] * 4, [-1] * 4), (of(part("loss", 5, 10)), [-1, 1, 1, -1], [-1, 0, 0, -1])):  # fmt: skip
        found_names, found_numbers = host_calls._open_at(times, trace, ("forward", "loss"))
        assert found_names.tolist() == name and found_numbers.tolist() == number


def test_a_key_is_looked_up_or_there_is_none() -> None:
    keys, values = np.array([2, 4, 4, 9]), np.array([20, 40, 41, 90])
    wanted = np.array([1, 2, 3, 4, 9, 10])
    assert host_calls.look_up(wanted, keys, values).tolist() == [-1, 20, -1, 40, 90, -1]
    assert host_calls.look_up(wanted, keys[:0], values[:0]).tolist() == [-1] * 6


def numbered(name: str, at: float, number: int, thread: int = 1) -> dict[str, Any]:
    return span(name, at, 1, thread, **{"Sequence number": number})


def forward_by_name(*events: dict[str, Any]) -> dict[str, str]:
    """Of each node, by the last word of its name, the operator that it is the backward of."""
    trace = of(*events)
    names = [trace.texts[name].rpartition(" ")[2] for name in trace.operators["name"]]
    return {
        names[place]: names[one]
        for place, one in enumerate(autograd_links.find_forward_operators(trace).tolist())
        if one >= 0
    }


def test_sequences_begin_at_0() -> None:
    """A node of the first operator of all has the number 0."""
    assert forward_by_name(numbered("a", 1, 0), numbered("b", 3, 1), node("A", 10, 0, 1), node("B", 12, 1, 1)) == {
        "A": "a",
        "B": "b",
    }
    trace = of(numbered("a", 1, 0), span("plain", 3, 1))
    assert nesting.nest_operators(trace).numbered.tolist() == [0, -1]


def test_without_links_the_forward_pass_is_of_the_thread_that_runs_most_of_what_has_numbers() -> None:
    """Neither of one with more operators that have none, nor of that with more nodes."""
    few = [numbered("few", 1, 1, thread=11), *(span("none", 3 + 2 * place, 1, 11) for place in range(5))]
    most = [numbered(f"most{number}", 10 * number, number, thread=22) for number in (1, 2)]
    nodes = [node("B1", 100, 1, 1, 33), node("B2", 102, 2, 1, 33), *(node(f"X{place}", 110 + 2 * place, 9, 1, 33) for place in range(4))]  # fmt: skip
    for order in ([*few, *most, *nodes], [*nodes, *most, *few]):
        assert forward_by_name(*order) == {"B1": "most1", "B2": "most2"}


def test_an_id_of_0_or_none_is_no_operators() -> None:
    """Though operators have the IDs 0 and 2."""
    events = [span("zero", 1, 3, **{"External id": 0}), span("two", 5, 3, **{"External id": 2})]
    for given, operator in ((0, ""), (-1, ""), (1, ""), (2, "two")):
        table = owners.tabulate_launches(of(*events, called(6, 9, operator=given), ran("k", 20, 1, 9, given)))
        assert table["operator"].tolist() == [operator]


def test_what_has_no_call_is_no_replay() -> None:
    """Wherever among the texts a replay's call has its name."""
    graph = "cudaGraphLaunch_v10000"
    for events in (
        [called(1, 5, "x"), called(2, 6, graph)],
        [called(2, 6, graph), called(1, 5, "x")],
        [called(2, 6, graph)],
    ):
        for order in ([*events, ran("k", 10, 1, 99)], [ran("k", 10, 1, 99), *events]):
            assert graph_replays.find_replayed(of(*order)).tolist() == [False]


def test_what_an_operator_needs_is_with_its_first_launch() -> None:
    """Two products of 240 operations, each with launches of its own and of two replays; and what no operator made."""
    told = {"Input Dims": [[4, 5], [5, 6]], "Input type": ["float"] * 2, "Concrete Inputs": [""] * 2}
    trace = of(span("aten::mm", 0, 1, **told), span("aten::mm", 2, 1, **told), span("aten::view", 4, 1))
    parents = np.array([-1, -1, -1])
    operators = np.array([0, 0, 1, -1, 0, 1, 0, 1, 1, 2])
    replay = np.array([-1, -1, -1, -1, 0, 0, 1, 1, 0, -1])
    need = launch_costs.launch_costs(trace, parents, operators, replay)
    # Bytes of 20 + 30 read and 24 written, of 4 each.
    whole, none = [240, 0, 296], [0, 0, 0]
    assert np.nan_to_num(need, nan=-1).tolist() == [
        whole, none, whole, [-1] * 3, whole, whole, whole, whole, none, [-1] * 3
    ]  # fmt: skip
    nothing = launch_costs.launch_costs(of(), parents[:0], np.array([-1]), np.array([-1]))
    assert nothing.shape == (1, 3) and np.isnan(nothing).all()


@pytest.mark.parametrize(
    ("events", "possible"),
    [
        # Of 45 us on; those that follow begin at 55, 65 and so on, the ninth at 135: less than a us beside it is none.
        (long(3, dur=91.0), True), (long(3, dur=91.001), False),
        # Launched at 2020 us: clocks may differ by 1 ms.
        (long(31, ts=1020.0), True), (long(31, ts=1019.999), False),
        # A trace of 3000 us, and a second behind it.
        (long(59, dur=1_003_000.0), True), (long(59, dur=1_003_000.001), False),
    ],
)  # fmt: skip
def test_which_times_of_a_launch_can_be(events: list[dict[str, Any]], possible: bool) -> None:
    assert (losses.find_impossible(torch_trace.make_trace(events)) is None) == possible


def test_a_capture_holds_what_is_launched_between_its_calls_and_not_with_them() -> None:
    marks = [called(10, 900, "cudaStreamBeginCapture_v10000"), called(30, 901, "cudaStreamEndCapture_v10000")]
    # Of launches at 10, 20, 30 and 40 us that of 20 is captured.
    assert found([*step(0, 4, 0, lost=4), *marks]).told() == ["step 1 of 1: 3 of 3 launch calls have no kernel"]


def test_the_sum_of_a_gradient_without_a_node_before_it_is_of_none() -> None:
    name = f"{nesting.ENGINE}{nesting.ACCUMULATE}"
    trace = of(span(name, 0, 1, 2), node("A", 2, 5, 1), span(name, 4, 1, 2), span(nesting.ACCUMULATE, 4.2, 0.5, 2))
    nested = nesting.nest_operators(trace)
    assert nesting.classify_operators(trace).tolist() == [nesting.SUM, nesting.NODE, nesting.SUM, nesting.SUM]
    assert nested.node.tolist() == [-1, 1, 1, 1] and nested.numbered.tolist() == [-1, 1, 1, 1]
