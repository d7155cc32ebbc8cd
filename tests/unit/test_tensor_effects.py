"""What operators read and write, also by indices: numbers of bytes worked out by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from profzoo.op_costs import elementwise
from profzoo.op_costs.operators import operator_cost
from profzoo.op_costs.tensor_effects import FLOATING, KINDS, call_effects, kind_of

F, H, L, B = "float", "c10::Half", "long int", "bool"


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "reads", "writes"),
    [
        # Weights of one row are broadcast; a number does not count for the type.
        ("mul", [[8, 16], [16]], [F, F], ["", ""], [512, 64], [512]),
        ("mul", [[8, 16], []], [H, "double"], ["", ""], [256], [256]),
        ("eq", [[8, 16], []], [F, "Scalar"], ["", "0"], [512], [128]),
        # The first input is written: a change of type.
        ("copy_", [[8, 16], [8, 16], []], [H, F, "Scalar"], ["", "", "False"], [512], [256]),
        ("cat", [[[8, 4], [8, 12]], []], ["TensorList", "Scalar"], ["", "1"], [128, 384], [512]),
        ("sum", [[8, 16], [], [], []], [F, "ScalarList", "Scalar", ""], ["", "[1]", "False", ""], [512], [32]),
        ("sum", [[8, 16], []], [F, ""], ["", ""], [512], [4]),
        ("_softmax", [[8, 16], [], []], [H, "Scalar", "Scalar"], ["", "1", "True"], [256], [512]),
        ("native_dropout", [[8, 16], [], []], [F, "Scalar", "Scalar"], ["", "0.1", "True"], [512], [512, 128]),
        ("fill_", [[8, 16], []], [F, "Scalar"], ["", "0"], [], [512]),
        ("logical_not", [[8, 16]], [B], [""], [128], [128]),
        ("gt", [[8, 16], []], [F, "Scalar"], ["", "0"], [512], [128]),
        ("where", [[8, 16], [8, 16], [8, 16]], [B, F, F], ["", "", ""], [128, 512, 512], [512]),
        ("gelu", [[8, 16]], ["c10::BFloat16"], [""], [256], [256]),
        ("mean", [[2, 4, 8], [], [], []], [F, "ScalarList", "Scalar", ""], ["", "[0, 1]", "False", ""], [256], [32]),
        ("amax", [[8, 16], [], []], [F, "ScalarList", "Scalar"], ["", "[1]", "True"], [512], [32]),
        ("bmm", [[2, 8, 4], [2, 4, 16]], [F, F], ["", ""], [256, 512], [1024]),
        ("addmm", [[16], [8, 4], [4, 16]], [F, F, F], ["", "", ""], [64, 128, 256], [512]),
        # Nothing is told of what it works on.
        ("mul", [], [], [], [], []),
    ],
)
def test_bytes_by_hand(
    name: str, dims: list[Any], types: list[str], values: list[str], reads: list[int], writes: list[int]
) -> None:
    found = call_effects(f"aten::{name}", dims, types, values)
    assert [one.bytes for one in found.reads] == reads and [one.bytes for one in found.writes] == writes
    assert found.bytes == sum(reads) + sum(writes)


def test_an_expanded_dimension_is_stored_once_and_a_part_is_known() -> None:
    found = call_effects("aten::add", [[8, 16], [8, 16]], [F, F], ["", ""], [[16, 1], [0, 1]])
    assert [one.bytes for one in found.reads] == [512, 64] and found.writes[0].bytes == 512
    # One half of rows of 32, a transposed whole, and a row of one element.
    parts = [[[32, 1], True], [[1, 8], False], [[16, 1], False]]
    for steps, part in parts:
        assert call_effects("aten::neg", [[8, 16]], [F], [""], [steps]).reads[0].part is part
    assert not call_effects("aten::neg", [[1, 16]], [F], [""], [[99, 1]]).reads[0].part


def test_only_operators_that_do_work_have_a_kind() -> None:
    assert {kind_of(f"aten::{name}") for name in ("view", "softmax", "linear", "to", "masked_fill", "clone")} == {None}
    assert kind_of("mul") is None and kind_of("triton_poi_fused_mul_0") is None
    assert all(f"{name}_" in KINDS for name in ("mul", "add", "relu", "exp", "masked_fill"))
    assert "float" in FLOATING


BF = "c10::BFloat16"
S = "Scalar"
# A cache of keys: 32 sequences of 8192 places, 8 heads of width 128. Its token is of 32 x 8 x 128 numbers of 2 bytes.
CACHE, TOKEN = [32, 8192, 8, 128], 2 * 32 * 8 * 128


@pytest.mark.parametrize(
    ("name", "inputs", "operations", "read", "written"),
    [
        # One token is written into a cache: 131 kB, not 1.07 GB. With an index per element, 8 bytes each more.
        ("index_copy_", [(BF, CACHE), 1, (L, [1]), (BF, [32, 1, 8, 128])], 0, [0, 8, TOKEN], TOKEN),
        ("index_put_", [(BF, CACHE), None, (BF, [32, 8, 128]), False], 0, [0, TOKEN], TOKEN),
        ("scatter_", [(BF, CACHE), 1, (L, [32, 1, 8, 128]), (BF, [32, 1, 8, 128])], 0, [0, 4 * TOKEN, TOKEN], TOKEN),
        # Ones of a loss that is written out, 4096 of 4096 x 50257: 49 kB, not 1.64 GB.
        ("scatter_", [(F, [4096, 50257]), 1, (L, [4096, 1]), 1.0], 0, [0, 8 * 4096], 4 * 4096),
        # Added to: what is there is read as well. `reduce` is a text, which a trace leaves out.
        ("scatter_", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 4]), None], 16, [64, 128, 64], 64),
        ("scatter_add_", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 4])], 16, [64, 128, 64], 64),
        ("scatter_reduce_", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 2]), None, True], 16, [64, 128, 64], 64),
        ("index_add_", [(F, [8, 100]), -1, (L, [3]), (F, [8, 3]), 1], 24, [96, 24, 96], 96),
        ("index_reduce_", [(F, [8, 100]), 0, (L, [3]), (F, [3, 100]), None, True], 300, [1200, 24, 1200], 1200),
        ("index_put_", [(F, [8, 100]), None, (F, [3, 100]), True], 300, [1200, 1200], 1200),
        # 400 numbers are added to 20: each of these is read and written once.
        ("index_add_", [(F, [2, 10]), 0, (L, [40]), (F, [40, 10]), 1], 400, [80, 320, 1600], 80),
        # Not in place: the rest is copied.
        ("scatter", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 2])], 0, [3200 - 64, 128, 64], 3200),
        ("index_add", [(F, [8, 100]), 0, (L, [3]), (F, [3, 100]), 1], 300, [3200, 24, 1200], 3200),
        ("scatter_add", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 4])], 16, [3200, 128, 64], 3200),
        ("scatter_reduce", [(F, [8, 100]), 1, (L, [8, 2]), (F, [8, 2]), None, True], 16, [3200, 128, 64], 3200),
        ("index_copy", [(F, [8, 100]), 0, (L, [3]), (F, [3, 100])], 0, [3200 - 1200, 24, 1200], 3200),
        ("index_reduce", [(F, [8, 100]), 0, (L, [3]), (F, [3, 100]), None, True], 300, [3200, 24, 1200], 3200),
        ("_index_put_impl_", [(F, [8, 100]), None, (F, [3, 100]), False, False], 0, [0, 1200], 1200),
        ("index_fill_", [(F, [8, 100]), 1, (L, [3]), 2.0], 0, [0, 24], 96),
        ("put_", [(F, [8, 100]), (L, [5]), (F, [5]), False], 0, [0, 40, 20], 20),
        ("put_", [(F, [8, 100]), (L, [5]), (F, [5]), True], 5, [20, 40, 20], 20),
        ("masked_scatter_", [(F, [8, 100]), (B, [8, 100]), (F, [5])], 0, [0, 800, 20], 20),
        # Read: rows of a dimension that is not the first one, elements, rows of a table, at most all that there are.
        ("index_select", [(F, [8, 100, 3]), 1, (L, [5])], 0, [480, 40], 480),
        ("gather", [(F, [8, 100]), 1, (L, [8, 2]), False], 0, [64, 128], 64),
        ("take", [(F, [8, 100]), (L, [5])], 0, [20, 40], 20),
        ("embedding", [(F, [50, 6]), (L, [7])], 0, [168, 56], 168),
        ("embedding", [(F, [2, 6]), (L, [7])], 0, [48, 56], 168),
        ("index", [(F, [8, 100]), [[3]]], 0, [1200, 24], 1200),
        ("index", [(F, [8, 100]), [[3], [3]]], 0, [12, 24, 24], 12),
        # Sums of rows: two bags, the last of whose offsets is an end.
        ("_embedding_bag", [(F, [50, 6]), (L, [7]), (L, [3]), False, 0, False, None, True, -1], 42, [168, 56, 24], 48),
        ("_embedding_bag", [(F, [50, 6]), (L, [7]), (L, [3]), False, 0, False, None, False, -1], 42, [168, 56, 24], 72),
        ("_embedding_bag_forward_only", [(F, [50, 6]), (L, [7]), (L, [3]), False, 0, False, None, False, -1], 42,
         [168, 56, 24], 72),
        # Gradients are zero but for a part.
        ("embedding_dense_backward", [(F, [7, 6]), (L, [7]), 50, -1, False], 42, [168, 56], 1200),
        ("_embedding_bag_dense_backward", [(F, [3, 6]), (L, [7]), (L, [7]), (L, [3]), (L, [3]), 50], 42, [72, 56, 56],
         1200),
        ("nll_loss_forward", [(F, [10, 4]), (L, [10]), None, 1, -100], 0, [40, 80], 4),
        ("nll_loss_forward", [(F, [10, 4]), (L, [10]), (F, [4]), 0, -100], 0, [40, 80, 16], 40),
        ("nll_loss2d_forward", [(F, [2, 4, 3, 3]), (L, [2, 3, 3]), None, 2, -100], 0, [72, 144], 4),
        ("nll_loss_backward", [(F, []), (F, [10, 4]), (L, [10]), None, 1, -100, (F, [])], 0, [4, 80], 160),
        ("nll_loss2d_backward", [(F, [2, 3, 3]), (F, [2, 4, 3, 3]), (L, [2, 3, 3]), (F, [4]), 0, -100, (F, [])], 0,
         [72, 144, 16], 288),
    ],
)  # fmt: skip
def test_bytes_of_indexing_by_hand(
    name: str, inputs: list[Any], operations: int, read: list[int], written: int
) -> None:
    dims, types, values = told(inputs)
    found = call_effects(f"aten::{name}", dims, types, values)
    assert [one.bytes for one in found.reads] == read and [one.bytes for one in found.writes] == [written]
    assert operator_cost(f"aten::{name}", dims, types, values) == (0, operations, sum(read) + written)


def told(inputs: Sequence[Any]) -> tuple[list[Any], list[str], list[str]]:
    """What a trace tells of inputs: tensors as (type, shape), indices in a list as their shapes, all else by value."""
    dims, types, values = [], [], []
    for one in inputs:
        tensor, several = isinstance(one, tuple), isinstance(one, list)
        dims.append(one[1] if tensor else one if several else [])
        types.append(one[0] if tensor else "TensorList" if several else "" if one is None else S)
        values.append("" if tensor or several or one is None else str(one))
    return dims, types, values


@pytest.mark.parametrize("name", ["index", "masked_select", "nonzero"])
def test_how_much_is_found_is_data(name: str) -> None:
    inputs = told([(F, [8, 100]), *([(B, [8, 100])] if name == "masked_select" else [None] if name == "index" else [])])
    found = call_effects(f"aten::{name}", *inputs)
    assert not found.writes and operator_cost(f"aten::{name}", *inputs) is None
    assert [one.bytes for one in found.reads] == {"index": [0], "masked_select": [0, 800], "nonzero": [3200]}[name]


def test_order_and_the_largest_have_values_and_numbers() -> None:
    sort = call_effects("aten::sort", *told([(F, [8, 100]), 1, True]))
    assert [one.bytes for one in (*sort.reads, *sort.writes)] == [3200, 3200, 6400]
    for count, dim, written in ((5, 1, 8 * 5), (5, -1, 8 * 5), (3, 0, 3 * 100)):
        most = call_effects("aten::topk", *told([(F, [8, 100]), count, dim, True, True]))
        assert [one.bytes for one in (*most.reads, *most.writes)] == [3200, 4 * written, 8 * written]


def test_what_a_trace_lacks_is_not_made_up() -> None:
    for name in ("scatter_", "index_select", "embedding", "nll_loss_backward", "embedding_dense_backward"):
        for inputs in ([], [(F, [8, 100])], [(F, [8, 100]), None, None]):
            found = call_effects(f"aten::{name}", *told(inputs))
            assert (found.kind, found.writes) == ("opaque", ()), name
            assert operator_cost(f"aten::{name}", *told(inputs)) is None


def test_each_operator_that_goes_by_indices_has_a_kind() -> None:
    assert all(name.removeprefix("aten::") in KINDS for name in elementwise.FORMULAS)
