"""Costs of elementwise operators: arithmetic, normalisation, pooling, losses, embeddings, optimizers.

Operations are counted per element from the formulas in torch's documentation. Terms that many elements share are left
out. The counts give orders of magnitude: a kernel that computes an exponential by a polynomial executes more. Sigmoid,
tanh, square root and the error function count as one operation each. Comparing and selecting, as in relu, cost none.
"""

from collections.abc import Callable
from functools import partial
from math import prod

from profzoo.op_costs.operator_calls import Call, Needed, Shape, UnknownError

# GELU: 0.5 x (1 + erf(x / sqrt 2)). Normalisation: mean and variance (1 + 3), subtraction and division (2), weight and
# bias (2).
GELU, NORMALISED = 5, 8
# Operations per element of the result, whose shape is the broadcast shape of the inputs.
POINTWISE: dict[str, int] = {
    "add": 1, "add_": 1, "sub": 1, "sub_": 1, "rsub": 1, "mul": 1, "mul_": 1, "div": 1, "div_": 1, "neg": 1, "pow": 1,
    "pow_": 1, "exp": 1, "exp_": 1, "log": 1, "log_": 1, "sqrt": 1, "sqrt_": 1, "rsqrt": 1, "reciprocal": 1, "erf": 1,
    "tanh": 1, "tanh_": 1, "sigmoid": 1, "sigmoid_": 1, "sin": 1, "cos": 1, "abs": 0, "sign": 0,
    "addcmul": 3, "addcmul_": 3, "addcdiv": 3, "addcdiv_": 3, "lerp": 3, "lerp_": 3,
    "relu": 0, "relu_": 0, "clamp": 0, "clamp_": 0, "clamp_min": 0, "clamp_min_": 0, "clamp_max": 0, "hardtanh": 0,
    "hardtanh_": 0, "threshold": 0, "threshold_backward": 0, "hardtanh_backward": 0, "where": 0, "maximum": 0,
    "minimum": 0, "masked_fill": 0, "masked_fill_": 0, "eq": 0, "ne": 0, "lt": 0, "gt": 0, "le": 0, "ge": 0,
    "leaky_relu": 1, "leaky_relu_": 1, "leaky_relu_backward": 1, "elu": 2, "gelu": GELU, "gelu_": GELU,
    "sigmoid_backward": 3, "tanh_backward": 3, "gelu_backward": 10, "silu": 2, "silu_": 2, "silu_backward": 6,
    "_prelu_kernel": 1, "_prelu_kernel_backward": 2, "mse_loss": 2, "mse_loss_backward": 3, "l1_loss": 1,
    "binary_cross_entropy_with_logits": 6,
}  # fmt: skip
# Operators of one input tensor, and of three; all others in POINTWISE have two.
ONE = frozenset(f"aten::{name}{end}" for end in ("", "_") for name in (
    "neg", "pow", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "tanh", "sigmoid", "sin", "cos", "abs", "sign",
    "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "masked_fill", "leaky_relu", "gelu", "silu",
    "elu"))  # fmt: skip
THREE = frozenset(f"aten::{name}" for name in ("addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "where"))
# Operations per element of the first input; the result is as large as this input.
ALIKE = {
    "_softmax": 4, "_log_softmax": 4, "_softmax_backward_data": 4, "_log_softmax_backward_data": 4,
    "cumsum": 1, "native_dropout": 1, "native_dropout_backward": 1, "fused_dropout": 1,
}  # fmt: skip
# Operations per element of the first input; the result is small beside this input.
REDUCED = {
    "sum": 1, "mean": 1, "max": 0, "min": 0, "amax": 0, "argmax": 0, "any": 0, "all": 0, "prod": 1, "var": 3, "std": 3,
    "norm": 2, "linalg_vector_norm": 2, "max_pool2d_with_indices": 0, "max_pool2d_with_indices_backward": 1,
    "avg_pool2d": 1, "avg_pool2d_backward": 1, "_adaptive_avg_pool2d": 1, "_adaptive_avg_pool2d_backward": 1,
}  # fmt: skip
# Normalisation: over the batch, over layers or groups, and backward.
BATCH_NORMS = {
    "cudnn_batch_norm": "input weight bias running_mean running_var training",
    "native_batch_norm": "input weight bias running_mean running_var training",
    "_native_batch_norm_legit": "input weight bias running_mean running_var training",
}
LAYER_NORMS = ("native_layer_norm", "native_group_norm")
NORMS_BACKWARD = ("cudnn_batch_norm_backward", "native_batch_norm_backward", "native_layer_norm_backward",
                  "native_group_norm_backward")  # fmt: skip
# Known statistics leave scale and shift. Backward: two sums (1 + 2); the normalised value (2); the gradient minus its
# mean and its projection on the normalised value, times weight and inverse deviation (4).
KNOWN, BACKWARD = 2, 9
# Operators that only move data: bytes read and written, as a multiple of the bytes of the inputs.
COPIED = {"copy_": 1, "fill_": 1, "zero_": 1, "clone": 2, "cat": 2, "stack": 2, "_to_copy": 2}
# Operations per element of the first list; an optimizer's step consists of these operators, or is a single fused one.
LISTS = {
    "_foreach_add_": 1, "_foreach_sub_": 1, "_foreach_mul_": 1, "_foreach_div_": 1, "_foreach_sqrt": 1,
    "_foreach_sqrt_": 1, "_foreach_neg": 1, "_foreach_add": 1, "_foreach_mul": 1, "_foreach_div": 1,
    "_foreach_addcmul_": 3, "_foreach_addcdiv_": 3, "_foreach_lerp_": 3, "_foreach_zero_": 0, "_foreach_copy_": 0,
    # Adam: two moving means (3 + 4), bias corrections (2), square root, sum, quotient, update (1 + 1 + 1 + 2).
    "_fused_adam_": 14, "_fused_adamw_": 16, "_fused_sgd_": 4,
}  # fmt: skip
# Inputs of losses by operator; below, inputs of operators that move whole images or rows.
LOSSES = {
    "nll_loss_forward": "self target",
    "nll_loss2d_forward": "self target",
    "nll_loss_backward": "grad_output self target",
    "nll_loss2d_backward": "grad_output self target",
}
MOVING = {
    "upsample_bilinear2d": "self output_size",
    "upsample_nearest2d": "self output_size",
    "upsample_bilinear2d_backward": "grad_output output_size input_size",
    "upsample_nearest2d_backward": "grad_output output_size input_size",
    "embedding": "weight indices",
    "embedding_dense_backward": "grad_output indices num_weights",
}


def pointwise_cost(call: Call, operations: int) -> Needed:
    """Return the cost of an operation on broadcast inputs; operations: per element of the result.

    A further tensor among the inputs is the one into which the result is written.

    Raises:
        UnknownError: no input is a tensor.
    """
    inputs = call.tensors()[: 1 if call.operator in ONE else 3 if call.operator in THREE else 2]
    if not inputs:
        raise UnknownError("no tensor")
    result = prod(broadcast([shape for shape, _ in inputs]))
    widest = max(size for _, size in inputs)
    return Needed(0, operations * result, sum(prod(shape) * size for shape, size in inputs) + result * widest)


def same_shape_cost(call: Call, operations: int) -> Needed:
    """Return the cost of an operation whose result is as large as its first input; operations: per element."""
    size = prod(call.tensors()[0][0])
    return Needed(0, operations * size, call.every_bytes() + size * call.widest())


def reduction_cost(call: Call, operations: int) -> Needed:
    """Return the cost of a reduction; operations: per element of the first input. The result's bytes are neglected."""
    return Needed(0, operations * prod(call.tensors()[0][0]), call.every_bytes())


def copy_cost(call: Call, times: int) -> Needed:
    """Return the cost of a copy: no operations, `times` the bytes of the inputs."""
    return Needed(0, 0, times * call.every_bytes())


def batch_norm_cost(call: Call) -> Needed:
    """Return the cost of batch normalisation; in training it includes the statistics of the batch."""
    return same_shape_cost(call, NORMALISED if call.value("training") else KNOWN)


def list_cost(call: Call, operations: int) -> Needed:
    """Return the cost of an operation on lists of tensors, such as aten::_foreach_add_.

    operations: per element of the first list; the elements of this list are also written.
    """
    size = sum(prod(shape) for shape in call.shapes_of("self"))
    return Needed(0, operations * size, call.every_bytes() + size * call.item_bytes("self"))


def resize_cost(call: Call, operations: int) -> Needed:
    """Return the cost of resizing images, or of its backward pass; operations: per element of the resized image."""
    given, points = call.shape(call.names[0]), call.value(call.names[-1])
    backward = call.names[0] == "grad_output"
    made = prod(points) if backward else prod(given[:2]) * prod(points)
    size = call.item_bytes(call.names[0])
    return Needed(0, operations * (prod(given) if backward else made), (prod(given) + made) * size)


def class_loss_cost(call: Call) -> Needed:
    """Return the cost of a loss that reads one class score per position; it has bytes but no operations."""
    target = prod(call.shape("target"))
    return Needed(0, 0, call.bytes_of("target") + target * call.item_bytes("self"))


def embedding_cost(call: Call) -> Needed:
    """Return the cost of an embedding: rows of the table are read and written."""
    rows = prod(call.shape("indices")) * call.shape("weight")[-1] * call.item_bytes("weight")
    return Needed(0, 0, call.bytes_of("indices") + 2 * rows)


def embedding_backward_cost(call: Call) -> Needed:
    """Return the backward cost of an embedding: the rows' gradients are added to the gradient of the whole table."""
    given = call.shape("grad_output")
    table = call.value("num_weights") * given[-1] * call.item_bytes("grad_output")
    return Needed(0, prod(given), call.bytes_of("grad_output", "indices") + table)


def broadcast(shapes: list[Shape]) -> Shape:
    """Return the broadcast shape of several shapes, by the rules of NumPy.

    >>> broadcast([(4, 1, 3), (5, 1), ()])
    (4, 5, 3)
    """
    longest = max(map(len, shapes), default=0)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def _with(formula: Callable[[Call, int], Needed], number: int, call: Call) -> Needed:
    return formula(call, number)


def _formulas() -> dict[str, Callable[[Call], Needed]]:
    found: dict[str, Callable[[Call], Needed]] = {}
    tables = (
        (POINTWISE, pointwise_cost),
        (ALIKE, same_shape_cost),
        (REDUCED, reduction_cost),
        (COPIED, copy_cost),
        (LISTS, list_cost),
    )
    for numbers, formula in tables:
        found |= {name: partial(_with, formula, number) for name, number in numbers.items()}
    found |= dict.fromkeys(BATCH_NORMS, batch_norm_cost)
    found |= dict.fromkeys(LAYER_NORMS, partial(_with, same_shape_cost, NORMALISED))
    found |= dict.fromkeys(NORMS_BACKWARD, partial(_with, same_shape_cost, BACKWARD))
    found |= {name: partial(_with, resize_cost, 6 if "linear" in name else 0) for name in MOVING if "upsample" in name}
    found |= dict.fromkeys(LOSSES, class_loss_cost)
    found |= {"embedding": embedding_cost, "embedding_dense_backward": embedding_backward_cost}
    return {f"aten::{name}": formula for name, formula in found.items()}


FORMULAS = _formulas()
SIGNATURES = {
    f"aten::{name}": inputs for name, inputs in (BATCH_NORMS | MOVING | LOSSES | dict.fromkeys(LISTS, "self")).items()
}
