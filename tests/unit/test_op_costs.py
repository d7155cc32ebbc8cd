"""What operators need, by formulas: against torch's own count, and against the same work done in other ways."""

import gzip
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from profzoo.op_costs.operator_calls import Needed
from profzoo.op_costs.operators import COLUMNS, FORMULAS, SIGNATURES, call_costs, operator_cost
from profzoo.op_costs.trace_calls import list_calls
from tests.conftest import DATA

ATEN = torch.ops.aten


def of(operator: str, *inputs: Any, kind: str = "float") -> Needed:
    """What a call needs; inputs: shapes of tensors as tuples, all else by value, None where left out."""
    tensors = [isinstance(one, tuple) for one in inputs]
    lists = [isinstance(one, list) and bool(one) and isinstance(one[0], tuple) for one in inputs]
    types = [
        kind if tensor else "TensorList" if many else "" if one is None else "Scalar"
        for one, tensor, many in zip(inputs, tensors, lists, strict=True)
    ]
    shapes = [one if tensor or many else [] for one, tensor, many in zip(inputs, tensors, lists, strict=True)]
    values = ["" if tensor or many or one is None else str(one)
              for one, tensor, many in zip(inputs, tensors, lists, strict=True)]  # fmt: skip
    found = operator_cost(f"aten::{operator}", shapes, types, values)
    assert found is not None, operator
    return found


def counted(run: Callable[[], Any]) -> int:
    """FlopCounterMode's count."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_inputs_are_named_as_in_torchs_schemas() -> None:
    for name, inputs in SIGNATURES.items():
        packet = getattr(ATEN, name.removeprefix("aten::"))
        every = [[argument.name for argument in getattr(packet, overload)._schema.arguments]
                 for overload in packet.overloads()]  # fmt: skip
        assert any(names[: len(inputs)] == inputs for names in every), name


def test_formulas_are_of_operators_that_there_are() -> None:
    unknown = [name for name in FORMULAS if not hasattr(ATEN, name.removeprefix("aten::"))]
    # Of other versions.
    assert set(unknown) <= {"aten::fused_dropout", "aten::_foreach_sqrt_"}


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("mm", [(3, 5), (5, 7)]),
        ("addmm", [(7,), (3, 5), (5, 7)]),
        ("bmm", [(2, 3, 5), (2, 5, 7)]),
        ("baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)]),
        ("_scaled_dot_product_efficient_attention", [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)]),
        ("_scaled_dot_product_flash_attention", [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)]),
        ("_scaled_dot_product_cudnn_attention", [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)]),
        *(
            (f"_scaled_dot_product_{kind}_attention_backward", [(2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)])
            for kind in ("efficient", "flash", "cudnn")
        ),
    ],
)
def test_products_and_attention_are_counted_as_by_torch(operator: str, shapes: list[tuple[int, ...]]) -> None:
    assert of(operator, *shapes).product_flop == flop_registry[getattr(ATEN, operator)](*shapes)


def test_products_with_vectors_by_hand() -> None:
    assert of("mv", (3, 5), (5,)) == (30, 0, 4 * (15 + 5 + 3))
    assert of("dot", (5,), (5,)) == (10, 0, 4 * 11)
    assert of("addmv", (3,), (3, 5), (5,)) == (30, 3, 4 * (3 + 15 + 5 + 3))
    assert of("addmm", (7,), (3, 5), (5, 7)).other_flop == 21


CONVOLUTIONS = [
    # channels in and out, kernel, stride, padding, dilation, groups, points
    (6, 8, [3, 3], [1, 1], [1, 1], [1, 1], 1, (9, 7)),
    (6, 8, [3, 2], [2, 1], [0, 1], [1, 2], 1, (9, 8)),
    (6, 8, [3, 3], [2], [1], [1], 2, (9, 7)),
    (6, 6, [5], [3], [2], [1], 6, (17,)),
    (4, 6, [2, 3, 2], [1, 1, 1], [0, 0, 0], [1, 1, 1], 2, (5, 6, 4)),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_counted_as_by_torch(case: tuple, transposed: bool) -> None:
    given, made, kernel, stride, padding, dilation, groups, points = case
    weight = (given, made // groups, *kernel) if transposed else (made, given // groups, *kernel)
    dimensions = len(kernel)
    arguments = [stride, padding, dilation, transposed, [0] * dimensions, groups]
    on_meta = [torch.empty(shape, device="meta") for shape in ((2, given, *points), weight, (made,))]
    result = ATEN.convolution(*on_meta, *arguments)
    found = of("convolution", (2, given, *points), weight, (made,), *arguments)
    assert found.product_flop == counted(lambda: ATEN.convolution(*on_meta, *arguments))
    assert found.other_flop == result.numel()
    assert found.bytes == 4 * (result.numel() + sum(tensor.numel() for tensor in on_meta))
    # Of each of both gradients as much: of groups, each by itself.
    alone = (given // groups, made // groups)
    part = torch.empty((2, alone[0], *points), device="meta")
    own = torch.empty((*(alone if transposed else alone[::-1]), *kernel), device="meta")
    ungrouped = [part, own, None, *arguments[:-1], 1]
    for mask in itertools.product([True, False], repeat=3):
        backward = of("convolution_backward", tuple(result.shape), (2, given, *points), weight, None, *arguments,
                      list(mask))  # fmt: skip
        grad = torch.empty(ATEN.convolution(*ungrouped).shape, device="meta")
        of_torch = counted(
            lambda mask=mask, grad=grad: ATEN.convolution_backward(grad, part, own, [alone[1]], *ungrouped[3:], mask)
        )
        assert backward.product_flop == groups * of_torch
        assert backward.other_flop == (result.numel() if mask[2] else 0)


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("cudnn_convolution", [(2, 6, 9, 7), (8, 3, 3, 3), [1, 1], [2, 2], [1, 1], 2, False, False, False]),
        ("mkldnn_convolution", [(2, 6, 9, 7), (8, 3, 3, 3), None, [1, 1], [2, 2], [1, 1], 2]),
        ("cudnn_convolution_relu", [(2, 6, 9, 7), (8, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], 2]),
    ],
)
def test_a_librarys_convolution_needs_what_torchs_does(operator: str, inputs: list[Any]) -> None:
    general = of("convolution", (2, 6, 9, 7), (8, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 2)
    assert of(operator, *inputs) == general


def test_depthwise_and_transposed_ones_have_operators_of_their_own() -> None:
    depthwise = of("_conv_depthwise2d", (2, 6, 9, 7), (6, 1, 3, 3), [3, 3], None, [2, 2], [1, 1], [1, 1])
    assert depthwise == of("convolution", (2, 6, 9, 7), (6, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 6)
    cudnn = of("cudnn_convolution_transpose", (2, 6, 9, 7), (6, 8, 2, 2), [0, 0], [0, 0], [2, 2], [1, 1], 1)
    assert cudnn == of("convolution", (2, 6, 9, 7), (6, 8, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1)
    slow = of("slow_conv_transpose2d", (2, 6, 9, 7), (6, 8, 2, 2), [2, 2], None, [2, 2], [0, 0], [0, 0], [1, 1])
    assert slow == cudnn


KINDS = {"RNN": 1, "LSTM": 2, "GRU": 3}


def by_steps(kind: str, given: int, hidden: int, layers: int, directions: int, batch: int, places: int) -> int:
    """Operations of the products of a network made of cells, forward and backward, by torch's count."""
    cells = [
        [getattr(nn, f"{kind}Cell")(given if layer == 0 else hidden * directions, hidden, device="meta")
         for _ in range(directions)]
        for layer in range(layers)
    ]  # fmt: skip

    def run() -> None:
        state = lambda: torch.zeros(batch, hidden, device="meta", requires_grad=True)  # noqa: E731
        inputs = [torch.zeros(batch, given, device="meta") for _ in range(places)]
        for layer in cells:
            made = []
            for cell in layer:
                now, outputs = (state(), state()) if kind == "LSTM" else state(), []
                for one in inputs:
                    now = cell(one, now)
                    outputs.append(now[0] if kind == "LSTM" else now)
                made.append(outputs)
            inputs = [torch.cat(outputs, dim=1) for outputs in zip(*made, strict=True)]
        torch.stack(inputs).sum().backward()

    return counted(run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (3, 2)])
def test_recurrent_layers_need_what_their_steps_need(kind: str, layers: int, directions: int) -> None:
    given, hidden, batch, places = 5, 4, 3, 6
    shape, mode = (places, batch, given), KINDS[kind]
    settings = [mode, hidden, 0, layers, False, 0.0, True, directions == 2, []]
    forward = of("_cudnn_rnn", shape, None, 4, None, None, None, *settings)
    backward = of("_cudnn_rnn_backward", shape, None, 4, None, None, None, None, None, None, None, *settings, None, None,
                  [False, True, True, True])  # fmt: skip
    assert forward.product_flop + backward.product_flop == by_steps(
        kind, given, hidden, layers, directions, batch, places
    )
    assert 0 < forward.other_flop < forward.product_flop


def test_a_projection_makes_the_state_narrower() -> None:
    """Weights of torch's own layer: each is multiplied once a place and sequence."""
    layer = nn.LSTM(5, 4, num_layers=2, proj_size=3, bidirectional=True)
    weights = sum(one.numel() for one in layer.parameters() if one.dim() == 2)
    found = of("_cudnn_rnn", (6, 3, 5), None, 5, None, None, None, 2, 4, 3, 2, False, 0.0, True, True, [])
    assert found.product_flop == 2 * 6 * 3 * weights


def test_an_lstm_needs_the_same_on_cpu_and_gpu() -> None:
    shape, gates = (6, 3, 5), (16, 4)
    cpu = of(
        "mkldnn_rnn_layer", shape, (16, 5), gates, (16,), (16,), None, None, False, [], 2, 4, 1, True, False, False
    )
    gpu = of("_cudnn_rnn", shape, None, 4, None, None, None, 2, 4, 0, 1, False, 0.0, True, False, [])
    assert cpu[:2] == gpu[:2]
    cell = of("_thnn_fused_lstm_cell", (3, 16), (3, 16), (3, 4), (16,), (16,))
    assert 6 * cell.other_flop == gpu.other_flop


def test_the_recorded_lstm_by_hand() -> None:
    """Batch 10, 256 words of 300 numbers, 64 units, with a layer of two classes behind it: three steps on a GPU."""
    table = list_calls(json.loads(gzip.decompress((DATA / "torch/train.trace.json.gz").read_bytes()))["traceEvents"])
    own = call_costs(table).groupby(table["operator"])["needed_product_flop"].sum() / 3
    weights, words = 4 * 64 * (300 + 64), 10 * 256
    assert own["aten::_cudnn_rnn"] == 2 * words * weights
    # Texts have no gradient.
    assert own["aten::_cudnn_rnn_backward"] == 2 * words * (2 * weights - 4 * 64 * 300)
    assert own["aten::addmm"] == 2 * 10 * 64 * 2 and own["aten::mm"] == 2 * own["aten::addmm"]
    assert own.sum() == own[["aten::_cudnn_rnn", "aten::_cudnn_rnn_backward", "aten::addmm", "aten::mm"]].sum()


def test_a_fused_encoder_layer_needs_what_its_parts_do() -> None:
    width, wide, heads, batch, places = 16, 40, 4, 3, 10
    layer = nn.TransformerEncoderLayer(width, heads, wide, batch_first=True, dropout=0.0, activation="gelu")
    with sdpa_kernel(SDPBackend.MATH):
        parts = counted(lambda: layer.train()(torch.rand(batch, places, width, requires_grad=True)))
    norms = [(width,)] * 4
    found = of("_transformer_encoder_layer_fwd", (batch, places, width), width, heads, (3 * width, width),
               (3 * width,), (width, width), (width,), True, False, 1e-5, *norms, (wide, width), (wide,),
               (width, wide), (width,))  # fmt: skip
    attention = of("_native_multi_head_attention", *[(batch, places, width)] * 3, width, heads, (3 * width, width),
                   (3 * width,), (width, width), (width,))  # fmt: skip
    assert found.product_flop == parts == attention.product_flop + 4 * batch * places * width * wide


def test_elements_by_hand() -> None:
    assert of("add_", (4, 8, 3), (8, 1)) == (0, 96, 4 * (96 + 8 + 96))
    assert of("relu", (10,)) == (0, 0, 80)
    # Where the result is given, it is not read.
    assert of("clamp", (10,), 0.0, 6.0, (10,)) == (0, 0, 80)
    assert of("addcmul", (10,), (10,), (10,)) == (0, 30, 160)
    assert of("sum", (4, 5)) == (0, 20, 80)
    assert of("copy_", (4, 5), (4, 5), kind="double") == (0, 0, 320)
    assert of("cat", [(4, 5), (4, 3)], 1) == (0, 0, 2 * 4 * 32)
    assert of("_foreach_mul_", [(4, 5), (3,)], 0.9) == (0, 23, 4 * 46)
    assert of("upsample_bilinear2d", (2, 3, 4, 4), [8, 8], False) == (0, 6 * 384, 4 * (96 + 384))
    assert of("embedding_dense_backward", (7, 6), (7,), 50, -1, False) == (0, 42, 4 * (42 + 7 + 300))
    training, known = (of("cudnn_batch_norm", (2, 3, 4, 4), (3,), (3,), (3,), (3,), flag) for flag in (True, False))
    assert training.other_flop == 8 * 96 and known.other_flop == 2 * 96


@pytest.mark.parametrize(
    ("operator", "dims", "types", "values"),
    [
        ("aten::view", [[4]], ["float"], [""]),
        ("aten::mm", [], [], []),
        ("aten::mm", [[4]], ["float"], [""]),
        ("aten::relu", [[]], [""], [""]),
        ("aten::_foreach_add_", [[], []], ["TensorList", "Scalar"], ["", "1"]),
        ("aten::convolution_backward", [[1, 1, 2, 2]] * 3, ["float"] * 3, ["", "", ""]),
        ("aten::_flash_attention_forward", [[8, 2, 4]] * 3 + [[3], [3]], ["float"] * 3 + ["int"] * 2, [""] * 5),
        ("aten::convolution", [[1, 1, 2, 2]] * 2, ["float"] * 2 + ["", "", "", "", "Scalar"], [""] * 6 + ["nonsense"]),
    ],
)
def test_what_is_not_told_is_not_known(operator: str, dims: list, types: list[str], values: list[str]) -> None:
    assert operator_cost(operator, dims, types, values) is None


@pytest.fixture(scope="module")
def counted_calls() -> pd.DataFrame:
    """Calls of operators in a training step of MobileNetV2 and BERT, with what ncu counted of their launches."""
    table = pd.read_csv(DATA / "launches/counted.csv.gz", keep_default_na=False)
    inputs = zip(table["operator"], *(table[name].map(json.loads) for name in ("dims", "types", "values")), strict=True)
    found = [operator_cost(*call) for call in inputs]
    return table.assign(flop=[one.flop if one else np.nan for one in found],
                        products=[one.product_flop if one else np.nan for one in found],
                        bytes=[one.bytes if one else np.nan for one in found])  # fmt: skip


def test_no_kernel_makes_do_with_fewer_instructions_than_products_need(counted_calls: pd.DataFrame) -> None:
    """On an H100 in fp32: a thread's instruction makes a product and a sum, and some only move."""
    table = counted_calls[counted_calls["products"] > 0]
    most = 2 * table["thread_instructions"] / table["products"]
    # The gradient of attention multiplies on tensor cores.
    simt = ~table["operator"].str.startswith("aten::_efficient_attention_backward")
    assert simt.sum() > 75 and most[simt].min() > 1.1
    # Large products of matrices leave little else to do.
    large = table["operator"].isin(["aten::mm", "aten::addmm"]) & (table["products"] > 1e9)
    assert large.sum() >= 10 and most[large].max() < 2


def test_no_operator_moves_fewer_bytes_through_l2_than_it_needs(counted_calls: pd.DataFrame) -> None:
    most = counted_calls["l2_bytes"] / counted_calls["bytes"]
    # What is expanded from fewer elements is given by its shape; a table's zeros are written by another operator.
    others = counted_calls["operator"].isin(["aten::div", "aten::embedding_dense_backward"])
    assert most.notna().sum() > 200 and most[~others].min() > 1.2
    # What goes through its inputs once, and is large, moves little more.
    names = ("add", "add_", "clamp", "hardtanh_backward", "gelu", "gelu_backward", "mul", "copy_", "native_dropout",
             "native_dropout_backward")  # fmt: skip
    once = counted_calls["operator"].isin([f"aten::{name}" for name in names]) & (counted_calls["bytes"] > 4e6)
    assert once.sum() > 30 and most[once].max() < 2.2


def table_of(*rows: tuple[str, list, int]) -> pd.DataFrame:
    """Calls of products: operator, shapes, position of the row that called it."""
    return pd.DataFrame(
        {
            "operator": [row[0] for row in rows],
            "dims": [json.dumps(row[1]) for row in rows],
            "types": [json.dumps(["float"] * len(row[1])) for row in rows],
            "values": [json.dumps([""] * len(row[1])) for row in rows],
            "parent": [row[2] for row in rows],
            "call": range(10, 10 + len(rows)),
        }
    )


def test_what_a_call_calls_is_not_counted_twice() -> None:
    product = [[4, 5], [5, 6]]
    table = table_of(
        ("aten::linear", product, -1),
        ("aten::addmm", [[6], *product], 0),
        ("aten::t", [[5, 6]], 1),
        ("aten::mm", product, 2),
        ("aten::relu", [[4, 6]], -1),
    )
    own = call_costs(table)
    assert own["needed_product_flop"].fillna(-1).tolist() == [-1, 0, -1, 240, 0]
    assert own["needed_other_flop"].fillna(-1).tolist() == [-1, 24, -1, 0, 0]
    assert list(own) == COLUMNS and own.loc[[0, 2]].isna().all(axis=None)


def test_no_calls_need_nothing() -> None:
    nothing = list_calls([])
    assert call_costs(nothing).empty and list(call_costs(nothing)) == COLUMNS
