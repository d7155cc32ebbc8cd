"""Traces of torch.profiler so small that calls, owners, times and replays of each launch are worked out by hand."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo import tools
from profzoo.tools.torch import activity, autograd_links, graph_replays, host_calls, nesting, owners, tables
from profzoo.tools.torch import trace as torch_trace

Event = dict[str, Any]


def span(name: str, at: float, long: float, thread: int = 1, category: str = "cpu_op", **arguments: Any) -> Event:
    """What lasts, in us."""
    return {"ph": "X", "cat": category, "name": name, "tid": thread, "ts": at, "dur": long, "args": arguments}


def part(name: str, at: float, long: float) -> Event:
    return span(f"profzoo:{name}", at, long, category="user_annotation")


def called(at: float, correlation: int, name: str = "cudaLaunchKernel", operator: int = 0, **more: Any) -> Event:
    linked = {"correlation": correlation, "External id": operator}
    return span(name, at, 0.5, category=more.pop("category", "cuda_runtime"), **linked, **more)


def ran(name: str, at: float, long: float, correlation: int, operator: int = 0, **more: Any) -> Event:
    linked = {"correlation": correlation, "External id": operator}
    return span(name, at, long, 7, more.pop("category", "kernel"), **linked, **more)


def of(*events: Event) -> torch_trace.Trace:
    return torch_trace.make_trace(events)


def test_times_are_rounded_to_whole_ns() -> None:
    """As the trace has them in us with three digits, which floats only come near to."""
    trace = of(part("step", 4_432_183_571.983, 0.009), span("a", 1.0006, 1.9996), span("b", 2.9994, 0.0004))
    assert trace.ranges["start"].tolist() == [4_432_183_571_983] and trace.ranges["ns"].tolist() == [9]
    assert trace.operators["start"].tolist() == [1001, 2999] and trace.operators["ns"].tolist() == [2000, 0]
    calls_of = of(called(1.0006, 3)).calls
    assert calls_of["start"].tolist() == [1001] and calls_of["ns"].tolist() == [500]
    launches = of(ran("k", 1.0006, 1.9996, 3)).launches
    assert launches["start"].tolist() == [1001] and launches["ns"].tolist() == [2000]


def test_a_trace_is_read_into_columns() -> None:
    sizes = {"grid": [4, 3, 2], "block": [32, 8, 1], "shared memory": 1024, "stream": 7, "device": 0, "context": 1}
    trace = of(
        ran("k", 10, 2, 5, 9, **sizes),
        ran("c", 20, 2, 6, category="gpu_memcpy", stream=7, device=1, context=1),
        ran("m", 30, 2, 7, category="gpu_memset"),
        ran("memset32_post", 40, 2, 8, grid=[1, 1], stream="7"),
        {"ph": "s", "cat": "fwdbwd", "id": 3, "tid": 1, "ts": 1.5}, {"ph": "f", "cat": "fwdbwd", "id": 3, "tid": 2, "ts": 2.5},
        {"ph": "i", "cat": "fwdbwd", "id": 4, "tid": 1, "ts": 1.5}, {"ph": "s", "cat": "fwdbwd", "id": "4", "tid": 1, "ts": 1},
        span("python", 0, 1, category="python_function"), {"name": "no category"},
    )  # fmt: skip
    columns = {name: column.tolist() for name, column in trace.launches.items()}
    assert columns["kind"] == [0, 1, 2, 2] and [trace.texts[name] for name in columns["name"]] == [
        "k",
        "c",
        "m",
        "memset32_post",
    ]
    assert columns["correlation"] == [5, 6, 7, 8] and columns["external"] == [9, 0, 0, 0]
    assert [columns[name][0] for name in torch_trace.SIZES] == [4, 3, 2, 32, 8, 1, 1024]
    assert [columns[name][3] for name in torch_trace.SIZES] == [-1] * 7
    # A text is no stream's number, but tells streams apart.
    assert columns["stream"] == [7, 7, -1, -1] and columns["queue"] == [0, 1, -1, 2]
    assert {name: column.tolist() for name, column in trace.links.items()} == {
        "start": [1500, 2500], "id": [3, 3], "thread": [0, 1], "forward": [1, 0]
    }  # fmt: skip
    assert len(trace.calls["start"]) == len(trace.ranges["start"]) == len(trace.operators["start"]) == 0


def test_operators_stand_by_thread_behind_what_they_ran_in() -> None:
    trace = of(
        span("late", 9, 1), span("inner", 0, 4), span("outer", 0, 8), span("other", 5, 1, thread=2),
        span("named", 6, 1, **{"Sequence number": 12, "Fwd thread id": 2, "External id": 5, "Input Dims": [[2, 3]]}),
    )  # fmt: skip
    operators = trace.operators
    assert [trace.texts[name] for name in operators["name"]] == ["outer", "inner", "named", "late", "other"]
    assert operators["thread"].tolist() == [0, 0, 0, 0, 1]
    assert operators["sequence"].tolist() == [-1, -1, 12, -1, -1] and operators["external"].tolist()[2] == 5
    assert operators["forward_thread"].tolist() == [0, 0, 2, 0, 0] and operators["inputs"].tolist() == [-1] * 5
    assert [trace.texts[shapes] for shapes in operators["shapes"]] == ["", "", "[[2, 3]]", "", ""]


NESTED = (
    # outer [0, 10) calls first [2, 5) and second [5, 8), which begins as the first ends; next begins as outer ends.
    span("outer", 0, 10), span("first", 2, 3), span("within", 3, 1.5), span("second", 5, 3), span("next", 10, 2),
    # Of another thread at the same time.
    span("apart", 3, 1, thread=2),
)  # fmt: skip


def test_an_operator_runs_in_the_one_that_has_not_ended() -> None:
    trace = of(*NESTED)
    found = nesting.nest_operators(trace)
    names = [trace.texts[name] for name in trace.operators["name"]]
    assert names == ["outer", "first", "within", "second", "next", "apart"]
    assert found.parent.tolist() == [-1, 0, 1, 0, -1, -1] and found.top.tolist() == [0, 0, 0, 0, 4, 5]


def test_an_operators_own_time_is_without_what_it_calls() -> None:
    """10 us less 3 and 3; 3 less 1.5; what is called by what is called does not count again."""
    trace = of(*NESTED)
    assert nesting.exclusive_ns(trace, nesting.nest_operators(trace).parent).tolist() == [
        4000,
        1500,
        1500,
        3000,
        2000,
        1000,
    ]
    table = owners.tabulate_operators(trace).set_index("name")["ns"].to_dict()
    assert table == {"outer": 4000, "first": 1500, "within": 1500, "second": 3000, "next": 2000, "apart": 1000}
    assert sum(table.values()) == 10_000 + 2000 + 1000
    # Ends that are rounded may lie behind that of what called.
    longer = of(span("outer", 0, 2), span("a", 0, 1), span("b", 1, 1.001))
    assert nesting.exclusive_ns(longer, nesting.nest_operators(longer).parent).tolist() == [0, 1000, 1001]


STEPS = (part("step", 100, 50), part("forward", 110, 10), part("backward", 120, 20), part("step", 150, 50))


@pytest.mark.parametrize(
    ("at", "step", "name"),
    [
        (99.999, -1, ""), (100, 0, ""), (109.999, 0, ""), (110, 0, "forward"), (119.999, 0, "forward"),
        (120, 0, "backward"), (139.999, 0, "backward"), (140, 0, ""), (149.999, 0, ""), (150, 1, ""), (199.999, 1, ""),
        (200, -1, ""),
    ],
)  # fmt: skip
def test_a_launch_is_in_what_is_open_when_it_is_made(at: float, step: int, name: str) -> None:
    """From its beginning on, and until just before its end."""
    trace = of(*STEPS, called(at, 3), ran("k", 500, 1, 3))
    assert host_calls.find_steps(host_calls.launch_times(trace), trace).tolist() == [step]
    assert tables.device_events(trace)["range"].tolist() == [name]
    table = owners.tabulate_launches(trace)
    assert table["step"].fillna(-1).tolist() == [step] and table["range"].tolist() == [name]
    where = name or ("step" if step >= 0 else "outside")
    assert table["module"].tolist() == [f"({where})"] and table["direction"].tolist() == [where]


def test_a_launch_belongs_to_its_first_call() -> None:
    trace = of(
        called(5, 3, category="cuda_driver", name="cuLaunchKernel"), called(4, 3), called(1, -1), called(2, 8),
        ran("k", 50, 1, 3), ran("none", 60, 1, 99), ran("k", 70, 1, 8),
    )  # fmt: skip
    assert host_calls.launching_calls(trace).tolist() == [1, -1, 3] and host_calls.launch_times(trace).tolist() == [
        4000,
        -1,
        2000,
    ]
    assert host_calls.launching_calls(of(ran("k", 1, 1, 3))).tolist() == [-1]


def node(name: str, at: float, sequence: int, forward: int, thread: int = 2) -> Event:
    """A node of autograd, of 1 us."""
    known = {"Sequence number": sequence, "Fwd thread id": forward}
    return span(f"{nesting.ENGINE}{name}", at, 1, thread, **known)


def module(path: str, kind: str, at: float, long: float, thread: int = 1) -> Event:
    return span(f"{nesting.OF_MODULE}{path}:{kind}", at, long, thread)


def test_a_node_is_the_backward_of_the_last_operator_with_its_number() -> None:
    """Of those alike on its forward's thread: what has the number when it begins, and makes no node, comes before."""
    trace = of(
        # First in the trace, so that its thread and it have the first place.
        node("MmBackward0", 50, 5, 1), node("AddBackward0", 52, 6, 1), node("NoneBackward0", 54, 9, 1),
        span("aten::linear", 0, 9, **{"Sequence number": 5}), span("aten::mm", 2, 2, **{"Sequence number": 5}),
        span("aten::add", 10, 1, **{"Sequence number": 6}), span("aten::view", 12, 1),
    )  # fmt: skip
    names = [trace.texts[name].rpartition(" ")[2] for name in trace.operators["name"]]
    found = autograd_links.find_forward_operators(trace).tolist()
    assert [names[one] if one >= 0 else "" for one in found] == ["aten::mm", "aten::add", "", "", "", "", ""]


def test_links_tell_which_thread_a_forward_pass_ran_on() -> None:
    """Two threads with the same numbers; autograd calls the second 1 and the first 2."""

    def link(kind: str, number: int, thread: int, at: float) -> Event:
        return {"ph": kind, "cat": "fwdbwd", "id": number, "tid": thread, "ts": at}

    forward = [span(f"f{thread}{number}", 10.0 * number, 1, thread, **{"Sequence number": number})
               for thread in (11, 22) for number in (1, 2, 3)]  # fmt: skip
    nodes = [
        node(f"B{one}{number}", 100 + 10 * number + one, number, one, 33) for one in (1, 2) for number in (1, 2, 3)
    ]
    # Two of three links of the first, which the third contradicts; and one of the second.
    pairs = [(1, 22, 1, 1), (2, 22, 2, 1), (3, 11, 3, 1), (4, 11, 1, 2)]
    linked = [one for number, thread, place, which in pairs
              for one in (link("s", number, thread, 10.0 * place), link("f", number, 33, 100 + 10 * place + which))]  # fmt: skip
    trace = of(*forward, *nodes, *linked)
    names = [trace.texts[name].rpartition(" ")[2] for name in trace.operators["name"]]
    found = {
        names[place]: names[one]
        for place, one in enumerate(autograd_links.find_forward_operators(trace).tolist())
        if one >= 0
    }
    assert found == {"B11": "f221", "B12": "f222", "B13": "f223", "B21": "f111", "B22": "f112", "B23": "f113"}


def test_owners_of_a_step_that_is_worked_out_by_hand() -> None:
    """A layer's product forward and backward, the sum of its gradient, a loss, and a function of no module."""
    events = [
        # Autograd's thread comes first in the file, so that its node has the first place of all.
        node("MmBackward0", 60, 5, 1), span("MmBackward0", 60.1, 0.8, 2, **{"Sequence number": 5, "Fwd thread id": 1}),
        span("aten::mm", 60.2, 0.5, 2, **{"External id": 21, "Input Dims": [[3, 2]]}),
        span(f"{nesting.ENGINE}{nesting.ACCUMULATE}", 62, 2, 2), span("aten::add_", 62.5, 1, 2, **{"External id": 22}),
        node("LossBackward0", 58, 6, 1), span("aten::div", 58.2, 0.5, 2, **{"External id": 23}),
        part("step", 0, 100), part("forward", 1, 20), part("loss", 30, 10), part("backward", 50, 30), part("optimizer", 85, 10),
        module("", "Net", 2, 18), module("layer", "Linear", 3, 8),
        span("aten::linear", 4, 6, **{"External id": 11}),
        span("aten::mm", 5, 3, **{"Sequence number": 5, "External id": 12, "Input Dims": [[2, 3]]}),
        span("aten::relu", 15, 2, **{"External id": 13}),
        span("aten::mse_loss", 31, 5, **{"Sequence number": 6, "External id": 14}),
        span("aten::copy_", 86, 3, **{"External id": 15}),
    ]  # fmt: skip
    for number, (operator, at) in enumerate(
        [(12, 6), (13, 15.5), (14, 32), (23, 58.3), (21, 60.3), (22, 63), (15, 87)]
    ):
        ids = {"operator": operator}
        events += [called(at, number, **ids), ran(f"k{number}", 200 + at, 1 + number, number, **ids)]
    events += [called(90, 70), ran("ncclDevKernel_AllReduce", 300, 2, 70), called(97, 71), ran("k", 310, 2, 71)]
    events += [called(120, 72), ran("k", 320, 2, 72)]
    table = owners.tabulate_launches(of(*events))
    assert table["name"].tolist() == [f"k{number}" for number in range(7)] + ["ncclDevKernel_AllReduce", "k", "k"]
    assert table["operator"].tolist() == ["aten::mm", "aten::relu", "aten::mse_loss", "aten::div", "aten::mm", "aten::add_",
                                          "aten::copy_", "", "", ""]  # fmt: skip
    assert table["module"].tolist() == ["layer", "", "(loss)", "(loss)", "layer", "layer", "(optimizer)", "(communication)",
                                        "(step)", "(outside)"]  # fmt: skip
    assert table["type"].tolist() == ["Linear", "Net", "", "", "Linear", "Linear", "", "", "", ""]
    assert table["direction"].tolist() == ["forward", "forward", "loss", "backward", "backward", "backward", "optimizer",
                                           "communication", "step", "outside"]  # fmt: skip
    assert table["caller"].tolist()[:7] == ["aten::linear", "aten::relu", "aten::mse_loss", "aten::div", "MmBackward0", "aten::add_",
                                            "aten::copy_"]  # fmt: skip
    assert table["range"].tolist() == ["forward", "forward", "loss", "backward", "backward", "backward", "optimizer", "optimizer",
                                       "", ""]  # fmt: skip
    assert table["shapes"].tolist() == ["[[2, 3]]", "", "", "", "[[3, 2]]", "", "", "", "", ""]
    assert table["step"].fillna(-1).tolist() == [0] * 9 + [-1] and table["order"].tolist() == [*range(9), 0]
    assert table["sequence"].fillna(-1).tolist() == [5, -1, 6, 6, 5, 5, -1, -1, -1, -1]
    assert table["call"].fillna(-1).tolist() == [0, 0, -1, -1, 0, 0, -1, -1, -1, -1]
    assert table["ns"].tolist() == [1000 * (1 + number) for number in range(7)] + [2000] * 3
    assert table["start_ns"].tolist()[:2] == [206_000, 215_500]


def test_the_first_operator_of_a_trace_is_as_good_as_others() -> None:
    """A node of autograd, whose thread the trace begins with: what is launched there is of its forward's module."""
    trace = of(
        node("MmBackward0", 60, 5, 1), span("aten::mm", 60.2, 0.5, 2, **{"External id": 21}),
        module("layer", "Linear", 3, 8), span("aten::mm", 5, 3, **{"Sequence number": 5, "External id": 12}),
        called(60.3, 1, operator=21), ran("k", 100, 1, 1, 21),
    )  # fmt: skip
    assert (
        trace.operators["sequence"].tolist()[0] == 5 and autograd_links.find_forward_operators(trace).tolist()[0] == 3
    )
    table = owners.tabulate_launches(trace)
    assert table[["module", "type", "direction"]].to_numpy().tolist() == [["layer", "Linear", "backward"]]


def test_a_trace_without_ranges_has_no_steps() -> None:
    """And the first text of a trace is a name as others."""
    events = [
        span("aten::mm", 0, 9, **{"External id": 12, "Input Dims": [[2, 3]]}),
        called(5, 1, operator=12),
        ran("k", 50, 1, 1, 12),
    ]
    table = owners.tabulate_launches(of(*events))
    assert table[["operator", "shapes", "caller", "module"]].to_numpy().tolist() == [
        ["aten::mm", "[[2, 3]]", "aten::mm", "(outside)"]
    ]
    assert table["step"].isna().all() and table["range"].tolist() == [""] and table["call"].isna().all()


def test_each_replay_needs_what_each_of_its_operators_does() -> None:
    """A graph of two products, of 2 * 4 * 5 * 6 and 2 * 2 * 3 * 7 operations; the first takes two kernels."""

    def product(number: int, at: float, dims: list[list[int]]) -> Event:
        told = {"Input Dims": dims, "Input type": ["float"] * 2, "Concrete Inputs": [""] * 2}
        return span("aten::mm", at, 1, **{"External id": number, **told})

    made = capture(0, 9, (1, 1, 11), (2, 2, 11), (3, 3, 12))
    events = [product(11, 1, [[4, 5], [5, 6]]), product(12, 2.5, [[2, 3], [3, 7]]), *made]
    for place in range(6):
        events += replay(20 + 10 * place, 70 + place, "abc")
    table = owners.tabulate_launches(of(*events))
    assert table["needed_product_flop"].tolist() == [240, 0, 84] * 6
    # What is launched by itself needs it once more.
    again = owners.tabulate_launches(of(*events, called(15, 90, operator=12), ran("d", 200, 1, 90, 12)))
    assert again["needed_product_flop"].tolist() == [84, *[240, 0, 84] * 6]


def test_modules_are_counted_by_call_and_step() -> None:
    """Called twice in a step, each time with a launch; once more within the backward pass; a third time in the next step."""

    def work(at: float, number: int, thread: int = 1) -> list[Event]:
        return [module("a.b", "Conv2d", at, 5, thread), span("aten::conv2d", at + 1, 2, thread, **{"External id": number}),
                called(at + 2, number, operator=number), ran("k", 1000 + at, 1, number, number)]  # fmt: skip

    again = [node("CheckpointBackward", 30, 4, 1), *work(30.1, 13, 2)]
    again[0]["dur"] = 9.0
    trace = of(part("step", 0, 50), *work(1, 11), *work(10, 12), *again, part("step", 50, 50), *work(60, 14))
    table = owners.tabulate_launches(trace)
    assert table["module"].tolist() == ["a.b"] * 4 and table["type"].tolist() == ["Conv2d"] * 4
    assert table["call"].tolist() == [0, 1, 0, 0] and table["step"].tolist() == [0, 0, 0, 1]
    assert table["direction"].tolist() == ["forward", "forward", "recompute", "forward"]
    counted = owners.tabulate_modules(trace)
    assert counted.to_dict("records") == [{"module": "a.b", "type": "Conv2d", "inputs": "", "calls": 3, "repeated": 1}]


def test_the_shapes_of_a_modules_inputs_are_listed_up_to_four() -> None:
    dims = [[2], [2], [3], [4], [5], [6]]
    marks = [
        span(f"{nesting.OF_MODULE}a:Linear", 10 * place, 5, **{"Input Dims": [one]}) for place, one in enumerate(dims)
    ]
    assert owners.tabulate_modules(of(*marks))["inputs"].tolist() == ["[[2]]; [[3]]; [[4]]; [[5]]"]


def test_an_operator_that_repeats_a_forward_pass_within_a_node() -> None:
    """Without a module, by its number alone; what has none is a part of the node's own work."""
    events = [node("CheckpointBackward", 10, 4, 1), span("aten::mm", 10.1, 0.2, 2, **{"Sequence number": 7}),
              span("aten::fill_", 10.4, 0.2, 2)]  # fmt: skip
    assert nesting.nest_operators(of(*events)).again.tolist() == [0, 1, 0]
    assert nesting.classify_operators(of(*events, module("a", "B", 1, 1))).tolist() == [
        nesting.NODE,
        nesting.PLAIN,
        nesting.PLAIN,
        nesting.MARK,
    ]


def capture(begin: float, end: float, *made: tuple[float, int, int]) -> list[Event]:
    """Calls that capture a graph, each at a time with its own number and that of its operator."""
    marks = [called(begin, 900, "cudaStreamBeginCapture_v10000"), called(end, 901, "cudaStreamEndCapture_v10000")]
    return [*marks, *(called(at, number, operator=operator) for at, number, operator in made)]


def replay(at: float, number: int, names: Sequence[str]) -> list[Event]:
    kernels = [ran(name, at + 1 + place, 1, number) for place, name in enumerate(names)]
    return [called(at, number, "cudaGraphLaunch_v10000"), *kernels]


@pytest.mark.parametrize(
    ("events", "ids"),
    [
        # The last capture of as many launches that began before the replay; one of another number is another graph's.
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), *replay(20, 70, "ab")], [11, 12]),
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), *capture(10, 19, (11, 3, 13), (12, 4, 14)), *replay(20, 70, "ab")], [13, 14]),
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), *capture(30, 39, (31, 3, 13), (32, 4, 14)), *replay(20, 70, "ab")], [11, 12]),
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), *replay(20, 70, "abc")], [-1, -1, -1]),
        ([*replay(20, 70, "ab")], [-1, -1]),
        # Neither calls outside of a capture, nor those that put nothing into a graph.
        ([*capture(5, 9, (1, 1, 11), (6, 2, 12), (7, 3, 13), (10, 4, 14)), *replay(20, 70, "ab")], [12, 13]),
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), called(3, 5, "cudaStreamIsCapturing"), *replay(20, 70, "ab")], [11, 12]),
        # Two replays, in the order of their calls.
        ([*capture(0, 9, (1, 1, 11), (2, 2, 12)), *replay(40, 71, "ab"), *replay(20, 70, "ab")], [11, 12, 11, 12]),
    ],
)  # fmt: skip
def test_replays_have_the_operators_of_their_capture(events: list[Event], ids: list[int]) -> None:
    trace = of(*events)
    assert graph_replays.find_capturing_operators(trace).tolist() == ids and graph_replays.find_replayed(
        trace
    ).tolist() == [True] * len(ids)


def test_replays_of_what_was_launched_one_by_one_have_its_operators() -> None:
    eager = [one for place, name in enumerate("xabcab")
             for one in (called(place, place + 1, operator=30 + place), ran(name, 10 + place, 1, place + 1, 30 + place))]  # fmt: skip
    trace = of(*eager, *replay(50, 70, "abc"), *replay(60, 71, "ab"), *replay(70, 72, "ba"))
    assert graph_replays.find_capturing_operators(trace).tolist() == [
        30,
        31,
        32,
        33,
        34,
        35,
        31,
        32,
        33,
        31,
        32,
        -1,
        -1,
    ]
    assert graph_replays.find_replayed(trace).tolist() == [False] * 6 + [True] * 7


OPERATORS = pd.DataFrame(
    [
        ("CPU", "aten::mm", 4, 70, 90, 30, 50, 200),
        ("CPU", "aten::relu", 2, 80, 80, 10, 10, 0),
        ("CPU", "profzoo:forward", 2, 5, 150, 0, 60, 0),
        ("CPU", "profzoo:module:a:Linear", 2, 5, 100, 0, 40, 0),
        ("CPU", "ProfilerStep*", 2, 5, 300, 0, 0, 0),
        ("CPU", "cudaLaunchKernel", 3, 6, 6, 0, 0, 0),
        ("CPU", "cuLaunchKernel", 1, 6, 6, 0, 0, 0),
        ("CPU", "cudnn_rnn", 1, 2, 2, 0, 0, 0),
        ("CUDA", "k", 2, 0, 0, 9, 9, 0),
    ],
    columns=["device", "name", "count", "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "flops"],
).assign(shapes="", stack="", **dict.fromkeys(tables.MEMORY, 7))


def tidied(gpu: bool = True, memory: bool = False, lacking: bool = False) -> pd.DataFrame:
    """The table of those operators and of three launches, two of them alike in the forward pass."""
    trace = of(part("forward", 0, 10), called(1, 1), called(2, 2), called(20, 3),
               ran("k", 50, 2, 1), ran("k", 60, 3, 2), ran("k", 70, 4, 3))  # fmt: skip
    return tables.tidy_operators(OPERATORS, trace, {"memory": memory}, gpu, lacking)


def test_the_table_of_a_gpu_by_hand() -> None:
    table = tidied()
    found = table[["kind", "name", "range", "count", "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "flops"]]
    assert found.fillna(-1).to_numpy().tolist() == [
        # By kind, and by the device's own time, then by the CPU's own.
        ["kernel", "k", "forward", 2, -1, -1, 5000, 5000, -1],
        ["kernel", "k", "", 1, -1, -1, 4000, 4000, -1],
        ["operator", "aten::mm", "", 4, 70, 90, 30, 50, 200],
        ["operator", "aten::relu", "", 2, 80, 80, 10, 10, -1],
        ["operator", "cudnn_rnn", "", 1, 2, 2, 0, 0, -1],
        # The launches of a range are those of its time.
        ["range", "forward", "", 2, 5, 150, -1, 5000, -1],
        ["runtime", "cuLaunchKernel", "", 1, 6, 6, 0, 0, -1],
        ["runtime", "cudaLaunchKernel", "", 3, 6, 6, 0, 0, -1],
    ]  # fmt: skip
    assert table[list(tables.MEMORY)].isna().all(axis=None)
    assert tidied(memory=True).loc[2, list(tables.MEMORY)].tolist() == [7] * 4


def test_without_steps_operators_have_no_time_on_the_device() -> None:
    table = tidied(lacking=True).set_index("kind")
    assert table.loc["operator", "device_ns"].isna().all() and table.loc["runtime", "self_device_ns"].isna().all()
    assert table.loc["kernel", "device_ns"].tolist() == [5000, 4000] and table.loc["range", "device_ns"] == 5000
    assert table.loc["operator", "cpu_ns"].tolist() == [80, 90, 2]


def test_what_the_table_says_of_kernels_and_parts() -> None:
    on_gpu, facts = tidied(), {"device_type": "cuda"}
    assert activity.summarise_kernels(on_gpu, facts)["ns"].tolist() == [5000, 4000]
    assert activity.summarise_ranges(on_gpu, facts) == ("gpu", {"": (4000, 1), "forward": (5000, 2)})
    on_cpu, facts = tidied(gpu=False), {"device_type": "cpu"}
    own = activity.summarise_kernels(on_cpu, facts)
    # The own time, not that with what is called, which would count the product twice.
    assert dict(zip(own["name"], own["ns"], strict=True)) == {"aten::relu": 80, "aten::mm": 70, "cudnn_rnn": 2}
    assert activity.summarise_ranges(on_cpu, facts) == ("cpu", {"forward": (150, None)})
    assert not tools.activities()["torch"].summarise_cell(on_gpu, facts)


def test_many_events_are_read_as_few(tmp_path: Path) -> None:
    """Beyond what becomes a column at once, and what a column holds at once."""
    count = torch_trace.BLOCK + 3
    events = [span("a", 2.0 * place, 1.0) for place in range(count)]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    operators = torch_trace.read_trace(path).operators
    assert operators["start"].tolist() == [2000 * place for place in range(count)]
    assert set(operators["ns"].tolist()) == {1000} and operators["ns"].dtype.itemsize == 2
