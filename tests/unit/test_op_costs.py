"""What operators need: numbers worked out by hand, and inputs of other kinds, left out or told in part."""

from typing import Any

import numpy as np
import pytest
import torch

from profzoo.op_costs import elementwise
from profzoo.op_costs.elementwise import ALIKE, COPIED, LISTS, POINTWISE, REDUCED, broadcast
from profzoo.op_costs.operator_calls import ITEM_BYTES, Call, Needed, UnknownError
from profzoo.op_costs.operators import FORMULAS, SIGNATURES, exclusive_costs, operator_cost

ATEN = torch.ops.aten


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


def of(operator: str, *inputs: Any) -> Needed:
    """What a call needs. Inputs: tensors of float32 as their shapes, of another type as `(type, shape)`, lists of
    tensors as lists of shapes, all else by value, None where left out."""
    dims, types, values = [], [], []
    for one in inputs:
        named = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)
        several = isinstance(one, list) and bool(one) and isinstance(one[0], tuple)
        tensor = isinstance(one, tuple)
        kind = one[0] if named else "float" if tensor else "TensorList" if several else "" if one is None else "Scalar"
        types.append(kind)
        dims.append(list(one[1] if named else one) if tensor or several else [])
        values.append("" if tensor or several or one is None else str(one))
    found = operator_cost(f"aten::{operator}", dims, types, values)
    assert found is not None, operator
    return found


@pytest.mark.parametrize(
    ("operator", "inputs", "right"),
    [
        # (3 x 5) by (5 x 7): 2 * 3 * 5 * 7 operations; 15 + 35 read, 21 written, of 4 bytes.
        ("mm", [(3, 5), (5, 7)], (210, 0, 4 * 71)),
        ("bmm", [(2, 3, 5), (2, 5, 7)], (420, 0, 4 * (30 + 70 + 42))),
        ("mv", [(3, 5), (5,)], (30, 0, 4 * (15 + 5 + 3))),
        ("dot", [(5,), (5,)], (10, 0, 4 * (5 + 5 + 1))),
        ("addmm", [(7,), (3, 5), (5, 7), 1, 1], (210, 21, 4 * (7 + 71))),
        ("_addmm_activation", [(7,), (3, 5), (5, 7), 1, 1, True], (210, 21, 4 * (7 + 71))),
        ("baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7), 1, 1], (420, 42, 4 * (42 + 142))),
        # Products of a batch of two are summed up in one matrix, and the first input with them.
        ("addbmm", [(3, 7), (2, 3, 5), (2, 5, 7), 1, 1], (420, 42, 4 * (21 + 30 + 70 + 21))),
        ("addmv", [(3,), (3, 5), (5,), 1, 1], (30, 3, 4 * (3 + 15 + 5 + 3))),
    ],
)
def test_products(operator: str, inputs: list[Any], right: tuple[int, int, int]) -> None:
    assert of(operator, *inputs) == right and of(operator, *inputs).flop == right[0] + right[1]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("double", 8), ("float", 4), ("c10::Half", 2), ("c10::BFloat16", 2), ("c10::Float8_e4m3fn", 1),
        ("c10::Float8_e5m2", 1), ("c10::complex<float>", 8), ("c10::complex<double>", 16), ("long int", 8), ("long", 8),
        ("int", 4), ("short int", 2), ("short", 2), ("signed char", 1), ("unsigned char", 1), ("bool", 1),
    ],
)  # fmt: skip
def test_elements_have_the_bytes_of_their_type(kind: str, size: int) -> None:
    assert of("mm", (kind, (3, 5)), (kind, (5, 7))).bytes == 71 * size
    assert len(ITEM_BYTES) == 16


# 2 images of 6 channels and 9 x 7 points; 8 channels of 3 x 3 in 2 groups, every second point, 1 around: 5 x 4 points.
IMAGES, WEIGHT, RESULT = (2, 6, 9, 7), (8, 3, 3, 3), (2, 8, 5, 4)
SETTINGS = [[2, 2], [1, 1], [1, 1], False, [0, 0], 2]
# Elements: 756 of images, 216 of weights, 320 of the result. Operations: 2 * 320 * 3 * 3 * 3.
ONCE = 17_280


@pytest.mark.parametrize(
    ("operator", "inputs", "right"),
    [
        ("convolution", [IMAGES, WEIGHT, (8,), *SETTINGS], (ONCE, 320, 4 * (756 + 216 + 8 + 320))),
        ("convolution", [IMAGES, WEIGHT, None, *SETTINGS], (ONCE, 0, 4 * (756 + 216 + 320))),
        ("_convolution", [IMAGES, WEIGHT, None, *SETTINGS], (ONCE, 0, 4 * (756 + 216 + 320))),
        (
            "cudnn_convolution_add_relu",
            [IMAGES, WEIGHT, RESULT, 1.0, (8,), [2, 2], [1, 1], [1, 1], 2],
            (ONCE, 320, 4 * (756 + 216 + 320 + 8 + 320)),
        ),
        # One number stands for both sides: (9 - 2 * 2 - 1) / 1 + 1 = 5 by 3 points, of 4 channels of 6 x 3 x 3.
        ("convolution", [(1, 6, 9, 7), (4, 6, 3, 3), None, [1], [0], [2], False, [0], 1],
         (2 * 60 * 54, 0, 4 * (378 + 216 + 60))),
        # Transposed: (4 - 1) * 2 - 2 * 1 + 1 * 2 + 1 + 1 = 8 points of each of 5; as many products as the input has.
        ("convolution", [(1, 3, 4), (3, 5, 3), (5,), [2], [1], [1], True, [1], 1],
         (2 * 12 * 15, 40, 4 * (12 + 45 + 5 + 40))),
        ("thnn_conv2d", [(1, 2, 4, 4), (3, 2, 3, 3), [3, 3], None, [1, 1], [0, 0]],
         (2 * 12 * 18, 0, 4 * (32 + 54 + 12))),
        # Either gradient takes as many; it is as large as what it is of, and takes the other.
        ("convolution_backward", [RESULT, IMAGES, WEIGHT, [8], *SETTINGS, [True, True, True]],
         (2 * ONCE, 320, 4 * (320 + 2 * (756 + 216)))),
        ("convolution_backward", [RESULT, IMAGES, WEIGHT, [8], *SETTINGS, [False, True, False]],
         (ONCE, 0, 4 * (320 + 756 + 216))),
    ],
)  # fmt: skip
def test_convolutions(operator: str, inputs: list[Any], right: tuple[int, int, int]) -> None:
    assert of(operator, *inputs) == right


# 2 x 3 heads of 5 queries and 7 keys: 210 scores, of width 8, and values of width 6.
HEADS_FIRST, HEADS_BEHIND = ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)), ((2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 6))
ATTENTION = (2 * 210 * (8 + 6), 4 * 210, 4 * (240 + 336 + 252 + 180))
# The scores again, and two gradients of each product; softmax twice; inputs, result and their gradients.
ATTENTION_BACKWARD = (2 * 210 * (3 * 8 + 2 * 6), 8 * 210, 4 * 2 * (240 + 336 + 252 + 180))


@pytest.mark.parametrize("kind", ["efficient", "flash", "cudnn", "flash_for_cpu"])
def test_attention_of_heads_first(kind: str) -> None:
    name = f"_scaled_dot_product_{kind.removesuffix('_for_cpu')}_attention{'_for_cpu' if 'cpu' in kind else ''}"
    assert of(name, *HEADS_FIRST) == ATTENTION
    assert of(f"{name}_backward", (2, 3, 5, 6), *HEADS_FIRST) == ATTENTION_BACKWARD


@pytest.mark.parametrize("kind", ["efficient", "flash"])
def test_attention_of_heads_behind_places(kind: str) -> None:
    assert of(f"_{kind}_attention_forward", *HEADS_BEHIND) == ATTENTION
    assert of(f"_{kind}_attention_backward", (2, 5, 3, 6), *HEADS_BEHIND) == ATTENTION_BACKWARD


# 6 places of 3 sequences of width 5, 4 units: an LSTM has 4 * 4 * (5 + 4) weights, of which 80 are of the input.
PLACES = (6, 3, 5)


def settings(mode: int, layers: int = 1, both: bool = False, narrow: int = 0) -> list[Any]:
    """Of cuDNN's operator, behind the states."""
    return [mode, 4, narrow, layers, False, 0.0, True, both, []]


@pytest.mark.parametrize(
    ("given", "right"),
    [
        # One gate, a sum of two products and two biases (3), squashed (1).
        (settings(0), (2 * 18 * 36, 18 * 4 * 4, 4 * (90 + 36 + 2 * 72))),
        (settings(1), (2 * 18 * 36, 18 * 4 * 4, 4 * (90 + 36 + 2 * 72))),
        # Four gates (16), c = f c + i g (3), h = o tanh c (2).
        (settings(2), (2 * 18 * 144, 18 * 4 * 21, 4 * (90 + 144 + 2 * 72))),
        # Three gates (12), r times a product (1), h = (1 - z) n + z h (4).
        (settings(3), (2 * 18 * 108, 18 * 4 * 17, 4 * (90 + 108 + 2 * 72))),
        # Two layers both ways: 2 * 16 * (5 + 4) weights, and above them 2 * 16 * (8 + 4).
        (settings(2, 2, True), (2 * 18 * 672, 18 * 16 * 21, 4 * (90 + 672 + 2 * 18 * 16))),
        # States of width 3: 16 * (5 + 3) weights, and 3 * 4 that make them narrow.
        (settings(2, narrow=3), (2 * 18 * 140, 18 * 4 * 21, 4 * (90 + 140 + 2 * 72))),
        # Above it 16 * (3 + 3) and 3 * 4 more.
        (settings(2, 2, narrow=3), (2 * 18 * 248, 18 * 8 * 21, 4 * (90 + 248 + 2 * 144))),
    ],
)
def test_recurrent_layers(given: list[Any], right: tuple[int, int, int]) -> None:
    assert of("_cudnn_rnn", PLACES, None, 4, None, None, None, *given) == right


@pytest.mark.parametrize(
    ("mask", "products", "of_bytes"),
    [
        ([True, True, True, True], 2 * 18 * 2 * 144, 4 * (90 + 72 + 72 + 2 * 144)),
        # Without that of the input, or of the weights.
        ([False, True, True, True], 2 * 18 * (2 * 144 - 80), 4 * (90 + 72 + 72 + 2 * 144)),
        ([True, False, False, False], 2 * 18 * 144, 4 * (90 + 72 + 72 + 144)),
    ],
)
def test_recurrent_layers_backward(mask: list[bool], products: int, of_bytes: int) -> None:
    states = [None, 4, None, None, None, (6, 3, 4), (6, 3, 4), None, None]
    found = of("_cudnn_rnn_backward", PLACES, *states, *settings(2), None, None, mask)
    assert found == (products, 18 * 4 * 21, of_bytes)


def test_recurrent_layers_of_the_cpu() -> None:
    given = [(16, 5), (16, 4), (16,), (16,), None, None]
    right = (2 * 18 * 144, 18 * 4 * 21, 4 * (90 + 80 + 64 + 72))
    assert of("mkldnn_rnn_layer", PLACES, *given, False, [], 2, 4) == right
    backward = [*given, (6, 3, 4), None, None, (6, 3, 4), None, None, False, 2, 4]
    assert of("mkldnn_rnn_layer_backward", PLACES, *backward) == (2 * right[0], right[1], 2 * right[2])


def test_cells_behind_their_products() -> None:
    lstm = of("_thnn_fused_lstm_cell", (3, 16), (3, 16), (3, 4), (16,), (16,))
    assert lstm == (0, 12 * 21, 4 * (48 + 48 + 12 + 16 + 16 + 2 * 12))
    gru = of("_thnn_fused_gru_cell", (3, 12), (3, 12), (3, 4), (12,), (12,))
    assert gru == (0, 12 * 17, 4 * (36 + 36 + 12 + 12 + 12 + 12))


@pytest.mark.parametrize(("gelu", "each"), [(True, 6), (False, 1)])
def test_fused_layers_of_transformers(gelu: bool, each: int) -> None:
    """3 texts of 10 places of width 16, 4 heads, 40 between."""
    projections, scores = 2 * 30 * (48 * 16 + 16 * 16), 3 * 10 * 10
    attention = (projections + 4 * scores * 16, 4 * scores * 4 + 4 * 30 * 16, 4 * (2 * 480 + 768 + 256))
    weights = [(48, 16), (48,), (16, 16), (16,)]
    assert of("_native_multi_head_attention", *[(3, 10, 16)] * 3, 16, 4, *weights) == attention
    norms = [(16,)] * 4
    found = of("_transformer_encoder_layer_fwd", (3, 10, 16), 16, 4, *weights, gelu, False, 1e-5, *norms,
               (40, 16), (40,), (16, 40), (16,))  # fmt: skip
    # A bias and what squashes; behind, of an element a bias, two residual sums and two normalisations of 8.
    others = attention[1] + 30 * 40 * each + 480 * (1 + 2 + 16)
    assert found == (attention[0] + 4 * 30 * 40 * 16, others, attention[2] + 4 * 1280)


# Operations of an element, as the formulas have them, and how many inputs an operator has.
NONE = "abs sign relu relu_ clamp clamp_ clamp_min clamp_min_ clamp_max hardtanh hardtanh_ threshold"
ONE = ("neg pow pow_ exp exp_ log log_ sqrt sqrt_ rsqrt reciprocal erf tanh tanh_ sigmoid sigmoid_ sin cos leaky_relu "
       "leaky_relu_")  # fmt: skip
NONE_OF_TWO = "threshold_backward hardtanh_backward maximum minimum eq ne lt gt le ge masked_fill masked_fill_"
ONE_OF_TWO = "add add_ sub sub_ rsub mul mul_ div div_ leaky_relu_backward _prelu_kernel l1_loss"
ELEMENTS = {
    **dict.fromkeys(NONE.split(), (1, 0)),
    **dict.fromkeys(ONE.split(), (1, 1)),
    **dict.fromkeys(NONE_OF_TWO.split(), (2, 0)),
    **dict.fromkeys(ONE_OF_TWO.split(), (2, 1)),
    # exp(x) - 1; x sigmoid(x); 0.5 x (1 + erf(x / c)): two products, a quotient, the function, a sum.
    **dict.fromkeys(["elu", "silu", "silu_"], (1, 2)),
    **dict.fromkeys(["gelu", "gelu_"], (1, 5)),
    # g (1 - y) y, g (1 - y y), and 2 (x - y) g; of x sigmoid(x): sigma (1 + x (1 - sigma)) g with the function.
    **dict.fromkeys(["sigmoid_backward", "tanh_backward", "mse_loss_backward"], (2, 3)),
    **dict.fromkeys(["mse_loss", "_prelu_kernel_backward"], (2, 2)),
    **dict.fromkeys(["silu_backward", "binary_cross_entropy_with_logits"], (2, 6)),
    "gelu_backward": (2, 10),
    # a + c x y, a + c x / y, a + w (b - a).
    **dict.fromkeys(["addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_"], (3, 3)),
    "where": (3, 0),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_of_elements(name: str) -> None:
    inputs, operations = ELEMENTS[name]
    # A tensor behind the inputs is where the result goes, which is written alone.
    for more in ([], [(2, 5)]):
        found = of(name, *[(2, 5)] * inputs, *more)
        assert found == (0, 10 * operations, 40 * (inputs + 1))


def test_elements_are_broadcast_and_take_the_widest_type() -> None:
    assert of("add", (4, 1, 3), (5, 1)) == (0, 60, 4 * (12 + 5 + 60))
    assert of("mul", ("c10::Half", (10,)), ("float", ())) == (0, 10, 20 + 4 + 40)
    assert of("add", ("double", (10,)), ("float", (10,))) == (0, 10, 80 + 40 + 80)
    assert broadcast([(4, 1, 3), (5, 1), ()]) == (4, 5, 3) and broadcast([]) == ()
    assert broadcast([(0, 3), (1, 3)]) == (0, 3)


def test_of_the_first_input() -> None:
    right = {"_softmax": 4, "_log_softmax": 4, "_softmax_backward_data": 4, "_log_softmax_backward_data": 4, "cumsum": 1,
             "native_dropout": 1, "native_dropout_backward": 1, "fused_dropout": 1}  # fmt: skip
    assert {name: of(name, (4, 5)) for name in ALIKE} == {name: (0, 20 * number, 160) for name, number in right.items()}
    # A mask has a byte an element, and the gradient four.
    assert of("native_dropout_backward", (10,), ("bool", (10,)), 2.0) == (0, 10, 40 + 10 + 40)
    # Mean and variance (1 + 3), off and over these (2), weight and bias (2).
    assert of("native_layer_norm", (4, 5), [5], (5,), (5,), 1e-5) == (0, 160, 4 * (20 + 5 + 5 + 20))
    assert of("native_group_norm", (4, 5), (5,), (5,), 4, 5, 1, 1, 1e-5) == (0, 160, 4 * (20 + 5 + 5 + 20))
    norms = [(2, 3, 4, 4), (3,), (3,), (3,), (3,)]
    for name in ("cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit"):
        assert of(name, *norms, True) == (0, 8 * 96, 4 * (96 + 12 + 96))
        assert of(name, *norms, False) == (0, 2 * 96, 4 * (96 + 12 + 96))
    # Two sums (1 + 2), the normalised value (2), and what becomes the gradient of the input (4).
    for name in (
        "cudnn_batch_norm_backward",
        "native_batch_norm_backward",
        "native_layer_norm_backward",
        "native_group_norm_backward",
    ):
        assert of(name, (4, 5), (4, 5), (5,)) == (0, 180, 4 * (20 + 20 + 5 + 20))


def test_of_what_is_reduced_or_moved() -> None:
    right = {"sum": 1, "mean": 1, "max": 0, "min": 0, "amax": 0, "argmax": 0, "any": 0, "all": 0, "prod": 1, "var": 3, "std": 3,
             "norm": 2, "linalg_vector_norm": 2, "max_pool2d_with_indices": 0, "max_pool2d_with_indices_backward": 1,
             "avg_pool2d": 1, "avg_pool2d_backward": 1, "_adaptive_avg_pool2d": 1, "_adaptive_avg_pool2d_backward": 1}  # fmt: skip
    expected = {name: (0, 20 * number, 80) for name, number in right.items()}
    assert {name: of(name, (4, 5)) for name in REDUCED} == expected
    times = {"copy_": 1, "fill_": 1, "zero_": 1, "clone": 2, "cat": 2, "stack": 2, "_to_copy": 2}
    assert {name: of(name, (4, 5)) for name in COPIED} == {name: (0, 0, 80 * number) for name, number in times.items()}


def test_of_lists() -> None:
    """Two moving means (3 + 4), their corrections (2), root, sum, quotient (3), step (2); decay: 2 more."""
    ones = ["add_", "sub_", "mul_", "div_", "sqrt", "sqrt_", "neg", "add", "mul", "div"]
    right = {f"_foreach_{name}": 1 for name in ones} | {
        f"_foreach_{name}_": 3 for name in ("addcmul", "addcdiv", "lerp")
    }
    right |= {"_foreach_zero_": 0, "_foreach_copy_": 0, "_fused_adam_": 14, "_fused_adamw_": 16, "_fused_sgd_": 4}
    expected = {name: (0, 23 * number, 4 * 3 * 23) for name, number in right.items()}
    assert {name: of(name, [(4, 5), (3,)], [(4, 5), (3,)]) for name in LISTS} == expected


def test_of_images() -> None:
    for kind, each in (("bilinear", 6), ("nearest", 0)):
        assert of(f"upsample_{kind}2d", (2, 3, 4, 4), [8, 8]) == (0, each * 384, 4 * (96 + 384))
        found = of(f"upsample_{kind}2d_backward", (2, 3, 8, 8), [8, 8], [2, 3, 4, 4])
        assert found == (0, each * 384, 4 * (384 + 96))


def test_calls_need_no_less_than_nothing_without_what_they_call() -> None:
    """A call of 100, that makes two of 30 and 80, one of them by way of one that nobody knows."""
    wholes = np.array([[100.0], [30.0], [80.0], [5.0]])
    own, holder = exclusive_costs(wholes, np.array([0, 1, 3, 4]), np.array([-1, 0, 0, 2, -1]))
    assert own.ravel().tolist() == [0.0, 30.0, 80.0, 5.0] and holder.tolist() == [0, 1, 0, 3, 4]
    own, _ = exclusive_costs(wholes[:3], np.array([0, 1, 2]), np.array([-1, 0, 1]))
    assert own.ravel().tolist() == [70.0, 0.0, 80.0]


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
    # Of long lists, shapes are left out; values may be fewer than inputs; and what is not a value of Python is none.
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
    assert one.bytes_of("a") == 12 and one.bytes_of("a", "a") == 24
    assert one.bytes_of("b", "c", "e", "z") == 0 == one.bytes_of()
    assert one.every_bytes() == 12 + 36 and one.tensors() == [((2, 3), 2, 6)] and one.widest() == 2
    more = call(types=["c10::Half", "TensorList", "float", "bool", "double"], shapes=[[2, 3], [], [], [5], [7]])
    assert more.every_bytes() == 12 + 0 + 4 + 5 + 56 and more.widest() == 8
    assert more.tensors() == [((2, 3), 2, 6), ((), 4, 1), ((5,), 1, 5), ((7,), 8, 7)]
    assert call(types=[], shapes=[]).widest() == 0 == call(types=[], shapes=[]).every_bytes()


QUERY, KEYS, SHARED = [1, 8, 2, 4], [1, 8, 9, 4], [36, 0, 4, 1]


@pytest.mark.parametrize(
    ("operator", "dims", "strides", "less"),
    [
        # Each head's keys and values are the same 36 numbers, of which 7 x 36 are stored nowhere.
        ("_scaled_dot_product_efficient_attention", [QUERY, KEYS, KEYS], [[], SHARED, SHARED], 2 * 7 * 36),
        # Gradients of all heads are written.
        ("_scaled_dot_product_efficient_attention_backward", [QUERY, QUERY, KEYS, KEYS], [[], [], SHARED, SHARED],
         2 * 7 * 36),
        # Values are the first three numbers of the keys, and stored with them; or they have rows of their own.
        ("_scaled_dot_product_efficient_attention", [QUERY, KEYS, [*KEYS[:3], 3]], [[], SHARED, SHARED],
         7 * 36 + 8 * 27),
        ("_scaled_dot_product_efficient_attention", [QUERY, KEYS, [*KEYS[:3], 3]], [[], SHARED, [27, 0, 3, 1]],
         7 * 36 + 7 * 27),
        ("bmm", [[8, 2, 4], [8, 4, 9]], [[8, 4, 1], [0, 9, 1]], 7 * 36),
        ("mul", [KEYS, KEYS], [[], SHARED], 7 * 36),
        ("clone", [KEYS], [SHARED], 7 * 36),
        ("cat", [[KEYS, KEYS]], [[SHARED, [288, 36, 4, 1]]], 7 * 36),
        ("sum", [KEYS], [SHARED], 7 * 36),
        ("index_select", [[5, 4], [], [9]], [[4, 1], [], [0]], 2 * 8),
    ],
)  # fmt: skip
def test_an_expanded_input_is_read_once(operator: str, dims: list[Any], strides: list[Any], less: int) -> None:
    types = ["TensorList" if one and isinstance(one[0], list) else "float" if one else "Scalar" for one in dims]
    if operator == "index_select":
        types[2] = "long int"
    given = f"aten::{operator}", dims, types, ["0" if kind == "Scalar" else "" for kind in types]
    whole, found = operator_cost(*given), operator_cost(*given, strides)
    assert whole and found and whole[:2] == found[:2] and whole.bytes - found.bytes == 4 * less


def test_what_is_not_told_is_unknown() -> None:
    for name, inputs in (
        ("mm", [[[3, 5]], ["float"], [""]]),
        ("mm", [[[3, 5], []], ["float", ""], ["", ""]]),
        ("add", [[], [], []]),
        ("add", [[[]], ["Scalar"], ["1"]]),
        ("_foreach_add_", [[[]], ["TensorList"], [""]]),
        ("relu", [None, None, None]),
        ("no_such_operator", [[[3]], ["float"], [""]]),
        ("mm", [[[4]], ["float"], [""]]),
        ("convolution_backward", [[[1, 1, 2, 2]] * 3, ["float"] * 3, [""] * 3]),
        ("convolution", [[[1, 1, 2, 2]] * 2, ["float"] * 2 + [""] * 4 + ["Scalar"], [""] * 6 + ["nonsense"]]),
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


def test_calls_without_what_they_call_whatever_is_between() -> None:
    """A layer of 240 + 24 operations that makes the product by way of one that nobody knows, and a sum apart."""
    wholes = np.array([of("addmm", (6,), (4, 5), (5, 6)), of("mm", (4, 5), (5, 6)), of("add", (6,))])
    own, holder = exclusive_costs(wholes, np.array([0, 2, 3]), np.array([-1, 0, 1, -1, -1]))
    # Bytes: 4 * (6 + 20 + 30 + 24) less 4 * (20 + 30 + 24).
    assert own.tolist() == [[0, 24, 24], [240, 0, 296], [0, 6, 48]] and holder.tolist() == [0, 0, 2, 3, -1]


def test_of_calls_that_nobody_knows_there_is_no_holder() -> None:
    own, holder = exclusive_costs(np.empty((0, 3)), np.array([], dtype=int), np.array([-1, 0, 1]))
    assert own.shape == (0, 3) and holder.tolist() == [-1, -1, -1]
    own, holder = exclusive_costs(np.array([[5.0]]), np.array([2]), np.array([-1, 0, 1, 2, 0]))
    assert own.tolist() == [[5]] and holder.tolist() == [-1, -1, 2, 2, -1]
