"""op_costs/tensor_effects: what operators read and write, by hand, by torch itself, and by what ncu counted."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from profzoo.op_costs.tensor_effects import FLOATING, KINDS, call_effects, kind_of
from tests import owned

DATA = Path(__file__).parents[1] / "data"
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
        # Three of the 1000 rows.
        ("embedding", [[1000, 16], [3]], [F, L], ["", ""], [192, 24], [192]),
        ("gather", [[8, 1000], [], [8, 1], []], [F, "Scalar", L, "Scalar"], ["", "1", "", "False"], [32, 64], [32]),
        ("nll_loss_forward", [[8, 1000], [8]], [F, L], ["", ""], [32, 64], [4]),
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


def test_how_much_is_picked_by_unknown_indices_is_unknown() -> None:
    found = call_effects("aten::index", [[8, 16], []], [F, "GenericList"], ["", ""])
    assert found.bytes == 0 and found.reads[0].elements == 128 and not found.writes


def test_an_expanded_dimension_is_stored_once_and_a_part_is_known() -> None:
    found = call_effects("aten::add", [[8, 16], [8, 16]], [F, F], ["", ""], [[16, 1], [0, 1]])
    assert [one.bytes for one in found.reads] == [512, 64] and found.writes[0].bytes == 512
    # One half of rows of 32, a transposed whole, and a row of one element.
    parts = [[[32, 1], True], [[1, 8], False], [[16, 1], False]]
    for steps, part in parts:
        assert call_effects("aten::neg", [[8, 16]], [F], [""], [steps]).reads[0].part is part
    assert not call_effects("aten::neg", [[1, 16]], [F], [""], [[99, 1]]).reads[0].part


CASES = {
    "add": lambda x, y: x + y[0],
    "mul": lambda x, y: x * 2,
    "gt": lambda x, y: x > y,
    "logical_not": lambda x, y: (x > 0).logical_not(),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "sum": lambda x, y: x.sum(-1, keepdim=True),
    "mean": lambda x, y: x.mean((0, 1)),
    "amax": lambda x, y: x.amax(1, keepdim=True),
    "cat": lambda x, y: torch.cat((x, y), -1),
    "bmm": lambda x, y: x @ y.transpose(1, 2),
    "_softmax": lambda x, y: x.softmax(-1),
    "native_layer_norm": lambda x, y: torch.nn.functional.layer_norm(x, (8,)),
    "index_select": lambda x, y: x.index_select(0, torch.tensor([1, 0, 1])),
    "gather": lambda x, y: x.gather(2, torch.zeros(2, 4, 1, dtype=torch.long)),
    "embedding": lambda x, y: torch.nn.functional.embedding(torch.tensor([[1, 2], [3, 0]]), x[0]),
    "gelu": lambda x, y: torch.nn.functional.gelu(x.bfloat16()),
    "copy_": lambda x, y: x.to(torch.float64),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_large_as_those_of_torch(name: str) -> None:
    x, y = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    expected = CASES[name](x, y)
    events = [one for one in owned.of_forward(CASES[name], x, y) if one.get("name") == f"aten::{name}"]
    inputs = (events[-1]["args"][key] for key in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides"))
    made = call_effects(f"aten::{name}", *inputs).writes[0]
    assert made.elements == expected.numel() and made.item == expected.element_size()


def test_only_operators_that_do_work_have_a_kind() -> None:
    assert {kind_of(f"aten::{name}") for name in ("view", "softmax", "linear", "to", "masked_fill", "clone")} == {None}
    assert kind_of("mul") is None and kind_of("triton_poi_fused_mul_0") is None
    assert all(f"{name}_" in KINDS for name in ("mul", "add", "relu", "exp", "masked_fill"))
    assert "float" in FLOATING


def test_bytes_are_those_that_ncu_counted_by_one_factor() -> None:
    """L2 of an H100 counts a byte about twice: on the way from DRAM and to the multiprocessors, or between its halves."""
    table = pd.read_csv(DATA / "launches/counted.csv.gz", keep_default_na=False)
    inputs = zip(table["operator"], *(table[name].map(json.loads) for name in ("dims", "types", "values")), strict=True)
    table["bytes"] = [call_effects(*call).bytes for call in inputs]
    kinds = table["operator"].map(kind_of)
    once = table[kinds.isin(["pointwise", "copy", "softmax"]) & (table["bytes"] > 1e6)]
    factor = once["l2_bytes"] / once["bytes"]
    assert len(once) > 50 and 1.4 < factor.median() < 2.0
    # A sum with a number in place, or a division by one, leaves part of its bytes in the cache of a multiprocessor.
    assert factor.quantile(0.05) > 0.8 * factor.median() and factor.quantile(0.95) < 1.35 * factor.median()
    # What reads its input more often moves more, and never less.
    more = table[kinds.isin(["norm", "reduction"]) & (table["bytes"] > 1e6)]
    assert (more["l2_bytes"] / more["bytes"]).min() > 0.8 * factor.median()
