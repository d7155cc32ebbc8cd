"""Owners, nesting, replays and needs of launches in traces so small that each is worked out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from profzoo.fusion.calls import read_step
from profzoo.tools.torch import losses, nesting, owners
from profzoo.tools.torch.trace import count_steps, launching_calls
from tests.unit.test_torch_trace import Event, called, of, part, ran, span

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
    expected = [4000, 1500, 1500, 3000, 2000, 1000]
    assert nesting.exclusive_ns(trace, nesting.nest_operators(trace).parent).tolist() == expected
    table = owners.tabulate_operators(trace).set_index("name")["ns"].to_dict()
    assert table == {"outer": 4000, "first": 1500, "within": 1500, "second": 3000, "next": 2000, "apart": 1000}
    assert sum(table.values()) == 10_000 + 2000 + 1000
    # Ends that are rounded may lie behind that of what called.
    longer = of(span("outer", 0, 2), span("a", 0, 1), span("b", 1, 1.001))
    assert nesting.exclusive_ns(longer, nesting.nest_operators(longer).parent).tolist() == [0, 1000, 1001]
    # Or behind the beginning of the next one, by which that is not called.
    meeting = of(span("a", 0, 5.001), span("b", 5, 5), span("within", 9, 1.001))
    assert nesting.nest_operators(meeting).parent.tolist() == [-1, -1, 1]


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
    found = owners.find_forward_operators(trace).tolist()
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
        names[place]: names[one] for place, one in enumerate(owners.find_forward_operators(trace).tolist()) if one >= 0
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
    assert trace.operators["sequence"].tolist()[0] == 5 and owners.find_forward_operators(trace).tolist()[0] == 3
    table = owners.tabulate_launches(trace)
    assert table[["module", "type", "direction"]].to_numpy().tolist() == [["layer", "Linear", "backward"]]


def test_a_trace_without_ranges_has_no_steps() -> None:
    events = [
        span("aten::mm", 0, 9, **{"External id": 12, "Input Dims": [[2, 3]]}),
        called(5, 1, operator=12),
        ran("k", 50, 1, 1, 12),
    ]
    table = owners.tabulate_launches(of(*events))
    expected = [["aten::mm", "[[2, 3]]", "aten::mm", "(outside)"]]
    assert table[["operator", "shapes", "caller", "module"]].to_numpy().tolist() == expected
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
    expected = [nesting.NODE, nesting.PLAIN, nesting.PLAIN, nesting.MARK]
    assert nesting.classify_operators(of(*events, module("a", "B", 1, 1))).tolist() == expected


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
    assert owners.find_capturing_operators(trace).tolist() == ids
    assert owners.find_replayed(trace).tolist() == [True] * len(ids)


def test_replays_of_what_was_launched_one_by_one_have_its_operators() -> None:
    eager = [one for place, name in enumerate("xabcab")
             for one in (called(place, place + 1, operator=30 + place), ran(name, 10 + place, 1, place + 1, 30 + place))]  # fmt: skip
    trace = of(*eager, *replay(50, 70, "abc"), *replay(60, 71, "ab"), *replay(70, 72, "ba"))
    assert owners.find_capturing_operators(trace).tolist() == [30, 31, 32, 33, 34, 35, 31, 32, 33, 31, 32, -1, -1]
    assert owners.find_replayed(trace).tolist() == [False] * 6 + [True] * 7


def test_nothing_of_an_empty_trace() -> None:
    trace = of()
    assert (
        len(nesting.classify_operators(trace))
        == len(nesting.nest_operators(trace).parent)
        == len(owners.find_forward_operators(trace))
        == 0
    )
    assert (
        len(launching_calls(trace))
        == len(owners.find_replayed(trace))
        == len(owners.find_capturing_operators(trace))
        == 0
    )
    assert count_steps(trace) == 0 and losses.find_impossible(trace) is None and losses.find_losses(trace).told() == []
    assert owners.tabulate_launches(trace).empty and owners.tabulate_operators(trace).empty
    assert owners.tabulate_modules(trace).empty


def numbered(name: str, at: float, number: int, thread: int = 1) -> dict[str, Any]:
    return span(name, at, 1, thread, **{"Sequence number": number})


def forward_by_name(*events: dict[str, Any]) -> dict[str, str]:
    """Of each node, by the last word of its name, the operator that it is the backward of."""
    trace = of(*events)
    names = [trace.texts[name].rpartition(" ")[2] for name in trace.operators["name"]]
    return {
        names[place]: names[one] for place, one in enumerate(owners.find_forward_operators(trace).tolist()) if one >= 0
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
    graph = "cudaGraphLaunch_v10000"
    for events in (
        [called(1, 5, "x"), called(2, 6, graph)],
        [called(2, 6, graph), called(1, 5, "x")],
        [called(2, 6, graph)],
    ):
        for order in ([*events, ran("k", 10, 1, 99)], [ran("k", 10, 1, 99), *events]):
            assert owners.find_replayed(of(*order)).tolist() == [False]


def test_what_an_operator_needs_is_with_its_first_launch() -> None:
    """Two products of 240 operations, each with launches of its own and of two replays; and what no operator made."""
    told = {"Input Dims": [[4, 5], [5, 6]], "Input type": ["float"] * 2, "Concrete Inputs": [""] * 2}
    trace = of(span("aten::mm", 0, 1, **told), span("aten::mm", 2, 1, **told), span("aten::view", 4, 1))
    parents = np.array([-1, -1, -1])
    operators = np.array([0, 0, 1, -1, 0, 1, 0, 1, 1, 2])
    replay = np.array([-1, -1, -1, -1, 0, 0, 1, 1, 0, -1])
    need = owners.launch_costs(trace, parents, operators, replay, np.zeros(len(operators), dtype=int))
    # Bytes of 20 + 30 read and 24 written, of 4 each.
    whole, none = [240, 0, 296], [0, 0, 0]
    assert np.nan_to_num(need, nan=-1).tolist() == [
        whole, none, whole, [-1] * 3, whole, whole, whole, whole, none, [-1] * 3
    ]  # fmt: skip
    nothing = owners.launch_costs(of(span("k", 0, 1)), parents[:0], *np.array([[-1], [-1], [0]]))
    assert nothing.shape == (1, 3) and np.isnan(nothing).all()


@pytest.mark.parametrize(
    ("operator", "kernel", "times", "size"),
    [
        ("aten::cat", "void CatArrayBatchedCopy_vectorized<(anonymous namespace)::OpaqueType<2u>, unsigned int, 2>", 2, 2),
        ("aten::cat", "void CatArrayBatchedCopy<(anonymous namespace)::OpaqueType<8u>, unsigned int, 2, 128, 1>", 2, 8),
        ("aten::cat", "void some_copy<int>", 2, 4),
        ("aten::_foreach_add_", "void multi_tensor_apply_kernel<M<1>, BinaryOpScalarFunctor<c10::BFloat16, 1, 1, 0>>", 2, 2),
        ("aten::_foreach_add_", "void multi_tensor_apply_kernel<M<1>, BinaryOpScalarFunctor<float, 1, 1, 0>>", 2, 4),
    ],
)  # fmt: skip
def test_bytes_of_lists_are_of_the_type_that_their_kernel_works_on(
    operator: str, kernel: str, times: int, size: int
) -> None:
    """Which a trace does not tell otherwise."""
    shapes = {"Input Dims": [[[8, 4], [8, 1]], []], "Input type": ["TensorList", "Scalar"]}
    operation = span(operator, 1, 3, **{"External id": 1, "Concrete Inputs": ["", "1"], **shapes})
    trace = of(operation, called(2, 9, operator=1), ran(kernel, 20, 1, 9, 1))
    assert owners.tabulate_launches(trace)["needed_bytes"].tolist() == [times * size * 40]
    (call,) = read_step(trace).flow.calls
    assert sum(one.bytes for one in (*call.reads, *call.writes)) == 2 * size * 40 or operator != "aten::cat"


def test_the_sum_of_a_gradient_without_a_node_before_it_is_of_none() -> None:
    name = f"{nesting.ENGINE}{nesting.ACCUMULATE}"
    trace = of(span(name, 0, 1, 2), node("A", 2, 5, 1), span(name, 4, 1, 2), span(nesting.ACCUMULATE, 4.2, 0.5, 2))
    nested = nesting.nest_operators(trace)
    assert nesting.classify_operators(trace).tolist() == [nesting.SUM, nesting.NODE, nesting.SUM, nesting.SUM]
    assert nested.node.tolist() == [-1, 1, 1, 1] and nested.numbered.tolist() == [-1, 1, 1, 1]
