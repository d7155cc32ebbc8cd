"""What is taken for a call's inputs where they are of other kinds, left out, or told in part."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.op_costs import elementwise
from profzoo.op_costs.operator_calls import Call, UnknownError
from profzoo.op_costs.operators import COLUMNS, FORMULAS, SIGNATURES, call_costs, exclusive_costs, operator_cost
from profzoo.op_costs.trace_calls import list_calls
from tests.unit.test_op_costs_by_hand import of


def call(**given: Any) -> Call:
    """A call of inputs a, b and so on: a tensor, a list of two, a number, one left out, one of another kind of tensor."""
    known: dict[str, Any] = {
        "operator": "aten::x", "names": ["a", "b", "c", "d", "e", "f"],
        "shapes": [[2, 3], [[4], [5]], [], [], [7]], "types": ["c10::Half", "TensorList", "Scalar", "", "QInt8"],
        "values": ["", "", "3", "", ""],
    }  # fmt: skip
    return Call(**(known | given))


def test_what_a_call_was_given() -> None:
    one = call()
    assert [name for name in [*one.names, "z"] if one.has(name)] == ["a"] and one.shape("a") == (2, 3)
    assert one.shapes_of("b") == [(4,), (5,)] and one.value("c") == 3 and one.value("d", 8) == one.value("f", 8) == 8
    assert one.value("z", 0) == 0 and one.value("c", 8) == 3
    for name in ("b", "c", "d", "e", "f", "z"):
        with pytest.raises(UnknownError, match=f"no tensor {name}"):
            one.shape(name)
    for name in ("a", "c", "f", "z"):
        with pytest.raises(UnknownError, match=f"no shapes of {name}"):
            one.shapes_of(name)
    # Of long lists, shapes are left out; values may be fewer than inputs; and what is no value of Python is none.
    with pytest.raises(UnknownError, match="no shapes of b"):
        call(shapes=[[2, 3], [], [], [], []]).shapes_of("b")
    for name in ("a", "d", "z"):
        with pytest.raises(UnknownError, match=f"no value of {name}"):
            one.value(name)
    with pytest.raises(UnknownError, match="no value of c"):
        call(values=["", ""]).value("c")
    assert call(values=["", "", "3"]).value("c") == 3
    with pytest.raises(UnknownError, match="c is inf"):
        call(values=["", "", "inf"]).value("c")
    assert call(values=["", "", "False"]).value("c", True) is False


def test_bytes_of_what_a_call_was_given() -> None:
    """2 x 3 of 2 bytes; 4 + 5 taken for float32; nothing of what has no size that is known."""
    one = call()
    assert [one.item_bytes(name) for name in [*one.names, "z"]] == [2, 4, 0, 0, 0, 0, 0]
    assert (
        one.bytes_of("a") == 12
        and one.bytes_of("a", "a") == 24
        and one.bytes_of("b", "c", "e", "z") == 0 == one.bytes_of()
    )
    assert one.every_bytes() == 12 + 36 and one.tensors() == [((2, 3), 2)] and one.widest() == 2
    more = call(types=["c10::Half", "TensorList", "float", "bool", "double"], shapes=[[2, 3], [], [], [5], [7]])
    assert more.every_bytes() == 12 + 0 + 4 + 5 + 56 and more.widest() == 8
    assert more.tensors() == [((2, 3), 2), ((), 4), ((5,), 1), ((7,), 8)]
    assert call(types=[], shapes=[]).widest() == 0 == call(types=[], shapes=[]).every_bytes()


def test_what_is_not_told_is_unknown() -> None:
    for name, inputs in (
        ("mm", [[[3, 5]], ["float"], [""]]),
        ("mm", [[[3, 5], []], ["float", ""], ["", ""]]),
        ("add", [[], [], []]),
        ("add", [[[]], ["Scalar"], ["1"]]),
        ("_foreach_add_", [[[]], ["TensorList"], [""]]),
        ("relu", [None, None, None]),
        ("no_such_operator", [[[3]], ["float"], [""]]),
    ):
        assert operator_cost(f"aten::{name}", *inputs) is None, name
    with pytest.raises(UnknownError, match="no tensor"):
        FORMULAS["aten::add"](Call("aten::add", [], [[]], ["Scalar"], ["1"]))


@pytest.mark.parametrize("kind", ["efficient", "flash"])
def test_attention_of_lengths_that_are_data_is_unknown(kind: str) -> None:
    """Texts of unlike lengths one behind the other: the trace says where each begins by a tensor; and no batch, no heads."""
    name = f"aten::_{kind}_attention_forward"
    place = SIGNATURES[name].index("cu_seqlens_q" if kind == "efficient" else "cum_seq_q")
    shapes, types = [[2, 5, 3, 8]] * 3 + [[]] * (place - 3) + [[4]], ["float"] * 3 + [""] * (place - 3)
    assert operator_cost(name, shapes, [*types, "int"], [""] * len(shapes)) is None
    assert operator_cost(name, shapes, [*types, ""], [""] * len(shapes)) is not None
    assert operator_cost(name, [[5, 3, 8]] * 3, ["float"] * 3, [""] * 3) is None


def test_fused_layers_of_nested_texts_are_unknown() -> None:
    weights = [[48, 16], [48], [16, 16], [16]]
    for dims, known in (([3, 10, 16], True), ([30, 16], False), ([1, 3, 10, 16], False)):
        shapes = [dims, dims, dims, [], [], *weights]
        types = ["float"] * 3 + ["Scalar"] * 2 + ["float"] * 4
        found = operator_cost(
            "aten::_native_multi_head_attention", shapes, types, ["", "", "", "16", "4", "", "", "", ""]
        )
        assert (found is not None) == known


def test_inputs_beyond_those_of_an_operator_are_where_it_writes() -> None:
    """One of one, two of two, and three of three: the next is not read."""
    assert of("relu", (4,), (4, 5)) == (0, 0, 32) and of("exp_", (4,), (4, 5)).bytes == 32
    assert of("mul", (4,), (4,), (4, 5)) == (0, 4, 48) and of("where", (4,), (4,), (4,), (4, 5)) == (0, 0, 64)
    assert of("mul", (4,), 2.0) == (0, 4, 32)
    # Of one number for all, and of nothing.
    assert of("add", (), (3, 1)) == (0, 3, 4 + 12 + 12) and of("add", (0, 4), (1, 4)) == (0, 0, 16)
    assert elementwise.broadcast([(2, 1), (1, 3), (3,)]) == (2, 3)


def test_transposed_convolutions_without_that_word() -> None:
    """2 images of 4 channels of 5 x 5, 4 x 3/2 results of 2 x 2 in 2 groups: (5 - 1) * 2 + 2 = 10, of 6 channels."""
    found = of("cudnn_convolution_transpose", (2, 4, 5, 5), (4, 3, 2, 2), [0, 0], [0, 0], [2, 2], [1, 1], 2)
    assert found == (2 * 200 * 12, 0, 4 * (200 + 48 + 2 * 6 * 100))
    # Spread by 3 and cut by 1, 1 more: (5 - 1) * 1 - 2 * 1 + 3 * (2 - 1) + 1 + 1 = 7.
    wide = of("slow_conv_transpose2d", (1, 4, 5, 5), (4, 3, 2, 2), [2, 2], None, [1, 1], [1, 1], [1, 1], [3, 3])
    assert wide == (2 * 100 * 12, 0, 4 * (100 + 48 + 3 * 49))
    backward = of("convolution_backward", (1, 3, 7, 7), (1, 4, 5, 5), (4, 3, 2, 2), [3], [1, 1], [1, 1], [3, 3], True, [1, 1],
                  1, [True, False, True])  # fmt: skip
    assert backward == (2 * 100 * 12, 147, 4 * (147 + 100 + 48))


def test_convolutions_of_one_and_three_dimensions() -> None:
    """(10 + 2 - 2 * 2 - 1) // 3 + 1 = 3 points of 5 channels; (4 - 1) // 1 + 1 of 2 each."""
    found = of("convolution", (1, 2, 10), (5, 2, 3), (5,), [3], [1], [2], False, [0], 1)
    assert found == (2 * 15 * 6, 15, 4 * (20 + 30 + 5 + 15))
    deep = of("slow_conv3d_forward", (1, 2, 4, 5, 6), (3, 2, 2, 2, 2), [2, 2, 2], None, [1, 1, 1], [0, 0, 0])
    assert deep == (2 * 3 * 60 * 16, 0, 4 * (240 + 48 + 180))
    # Each channel by itself: 4 of 3 x 3 by 2 x 2 make 4 of 2 x 2.
    own = of("_conv_depthwise2d", (1, 4, 3, 3), (4, 1, 2, 2), [2, 2], None, [1, 1], [0, 0], [1, 1])
    assert own == (2 * 16 * 4, 0, 4 * (36 + 16 + 16))
    spread = of("slow_conv_dilated2d", (1, 1, 5, 5), (1, 1, 2, 2), [2, 2], None, [2, 2], [1, 1], [3, 3])
    # (5 + 2 - 3 - 1) // 2 + 1 = 2.
    assert spread == (2 * 4 * 4, 0, 4 * (25 + 4 + 4))


def test_lstm_cells_and_layers_of_half_precision() -> None:
    """Half as many bytes, and as many operations."""
    half = "c10::Half"
    given = [(half, (6, 3, 5)), None, 4, None, None, None, 2, 4, 0, 1, False, 0.0, True, False, []]
    assert of("_cudnn_rnn", *given) == (2 * 18 * 144, 18 * 4 * 21, 2 * (90 + 144 + 2 * 72))
    cell = of("_thnn_fused_lstm_cell", (half, (3, 16)), (half, (3, 16)), (half, (3, 4)))
    assert cell == (0, 12 * 21, 2 * (48 + 48 + 12 + 2 * 12))


def test_calls_without_what_they_call_whatever_is_between() -> None:
    """A layer of 240 + 24 operations that makes the product by way of one that nobody knows, and a sum apart."""
    table = pd.DataFrame(
        {
            "operator": ["aten::addmm", "aten::unknown", "aten::mm", "aten::add", "aten::mm"],
            "dims": [json.dumps([[6], [4, 5], [5, 6]]), "", json.dumps([[4, 5], [5, 6]]), json.dumps([[6]]), ""],
            "types": [json.dumps(["float"] * 3), "", json.dumps(["float"] * 2), json.dumps(["float"]), ""],
            "values": [json.dumps([""] * 3), "", json.dumps([""] * 2), json.dumps([""]), ""],
            "parent": [-1, 0, 1, -1, -1],
        },
        index=[7, 8, 9, 10, 11],
    )
    found = call_costs(table)
    assert found.index.tolist() == [7, 8, 9, 10, 11] and list(found.columns) == COLUMNS
    # Bytes: 4 * (6 + 20 + 30 + 24) less 4 * (20 + 30 + 24).
    assert found.fillna(-1).to_numpy().tolist() == [[0, 24, 24], [-1] * 3, [240, 0, 296], [0, 6, 48], [-1] * 3]
    lists = table.head(1).assign(dims=[[[6], [4, 5], [5, 6]]], types=[["float"] * 3], values=[[""] * 3])
    assert call_costs(lists).to_numpy().tolist() == [[240, 24, 320]]


def test_of_calls_that_nobody_knows_there_is_no_holder() -> None:
    own, holder = exclusive_costs(np.empty((0, 3)), np.array([], dtype=int), np.array([-1, 0, 1]))
    assert own.shape == (0, 3) and holder.tolist() == [-1, -1, -1]
    own, holder = exclusive_costs(np.array([[5.0]]), np.array([2]), np.array([-1, 0, 1, 2, 0]))
    assert own.tolist() == [[5]] and holder.tolist() == [-1, -1, 2, 2, -1]


def test_a_call_ends_before_the_next_of_its_thread_and_not_of_another() -> None:
    """One that lasts nothing is in what is open as it begins; and threads may run at the same time."""
    given = [("a", 1, 0.0, 4.0), ("nothing", 1, 2.0, 0.0), ("b", 2, 1.0, 1.0), ("behind", 1, 4.0, 0.0)]
    events = [{"cat": "cpu_op", "name": name, "tid": thread, "ts": at, "dur": long} for name, thread, at, long in given]
    table = list_calls(events)
    assert table["operator"].tolist() == ["a", "nothing", "behind", "b"] and table["parent"].tolist() == [-1, 0, -1, -1]
    assert table["call"].tolist() == [-1] * 4
    assert list_calls([]).empty
