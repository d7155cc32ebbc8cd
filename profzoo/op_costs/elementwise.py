"""Costs of elementwise operators, and of operators that touch a part of a tensor.

Operations are counted per element from the formulas in torch's documentation. Terms that many elements share are left
out. The counts give orders of magnitude: a kernel that computes an exponential by a polynomial executes more. Sigmoid,
tanh, square root and the error function count as one operation each. Comparing and selecting, as in relu, cost none.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import NamedTuple

from profzoo.op_costs.operator_calls import ITEM_BYTES, Call, Needed, Shape, UnknownError

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
    "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "leaky_relu", "gelu", "silu",
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
# Inputs of operators that resize images.
MOVING = {
    "upsample_bilinear2d": "self output_size",
    "upsample_nearest2d": "self output_size",
    "upsample_bilinear2d_backward": "grad_output output_size input_size",
    "upsample_nearest2d_backward": "grad_output output_size input_size",
}


def pointwise_cost(operations: int, call: Call) -> Needed:
    """Return the cost of an operation on broadcast inputs; operations: per element of the result.

    A further tensor among the inputs is the one into which the result is written.

    Raises:
        UnknownError: no input is a tensor.
    """
    inputs = call.tensors()[: 1 if call.operator in ONE else 3 if call.operator in THREE else 2]
    if not inputs:
        raise UnknownError("no tensor")
    result = prod(broadcast([shape for shape, _, _ in inputs]))
    widest = max(size for _, size, _ in inputs)
    return Needed(0, operations * result, sum(stored * size for _, size, stored in inputs) + result * widest)


def same_shape_cost(operations: int, call: Call) -> Needed:
    """Return the cost of an operation whose result is as large as its first input; operations: per element."""
    size = prod(call.tensors()[0][0])
    return Needed(0, operations * size, call.every_bytes() + size * call.widest())


def reduction_cost(operations: int, call: Call) -> Needed:
    """Return the cost of a reduction; operations: per element of the first input. The result's bytes are neglected."""
    return Needed(0, operations * prod(call.tensors()[0][0]), call.every_bytes())


def copy_cost(times: int, call: Call) -> Needed:
    """Return the cost of a copy: no operations; times: 2 if what is read is written elsewhere."""
    return Needed(0, 0, call.every_bytes() + (times - 1) * replace(call, strides=()).every_bytes())


def batch_norm_cost(call: Call) -> Needed:
    """Return the cost of batch normalisation; in training it includes the statistics of the batch."""
    return same_shape_cost(NORMALISED if call.value("training") else KNOWN, call)


def list_cost(operations: int, call: Call) -> Needed:
    """Return the cost of an operation on lists of tensors, such as aten::_foreach_add_.

    operations: per element of the first list; the elements of this list are also written.
    """
    size = sum(prod(shape) for shape in call.shapes_of("self"))
    return Needed(0, operations * size, call.every_bytes() + size * call.item_bytes("self"))


def resize_cost(operations: int, call: Call) -> Needed:
    """Return the cost of resizing images, or of its backward pass; operations: per element of the resized image."""
    given, points = call.shape(call.names[0]), call.value(call.names[-1])
    backward = call.names[0] == "grad_output"
    made = prod(points) if backward else prod(given[:2]) * prod(points)
    size = call.item_bytes(call.names[0])
    return Needed(0, operations * (prod(given) if backward else made), (prod(given) + made) * size)


def broadcast(shapes: list[Shape]) -> Shape:
    """Return the broadcast shape of several shapes, by the rules of NumPy.

    >>> broadcast([(4, 1, 3), (5, 1), ()])
    (4, 5, 3)
    """
    longest = max(map(len, shapes), default=0)
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


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
        found |= {name: partial(formula, number) for name, number in numbers.items()}
    found |= dict.fromkeys(BATCH_NORMS, batch_norm_cost)
    found |= dict.fromkeys(LAYER_NORMS, partial(same_shape_cost, NORMALISED))
    found |= dict.fromkeys(NORMS_BACKWARD, partial(same_shape_cost, BACKWARD))
    found |= {name: partial(resize_cost, 6 if "linear" in name else 0) for name in MOVING}
    return {f"aten::{name}": formula for name, formula in found.items()}


ELEMENTWISE_FORMULAS = _formulas()
ELEMENTWISE_SIGNATURES = {
    f"aten::{name}": inputs for name, inputs in (BATCH_NORMS | MOVING | dict.fromkeys(LISTS, "self")).items()
}


# Costs of operators that touch a part of a tensor: the elements, rows or slices that indices or a mask choose.
#
# Of the tensor itself only the chosen elements count, each once: read where they are taken or added to, written where
# they are replaced. Indices and masks are read as a whole. An operator that returns a tensor of its own, such as
# `scatter`, also copies what it does not replace; one whose gradient is zero but for a part, such as
# `nll_loss_backward`, also writes the zeros.

# What happens to the chosen elements: they are read, replaced, or added to.
TAKE, REPLACE, ADD = "take", "replace", "add"
# Which elements are chosen: one per index; a slice per index; by a list of indices; as many as the source has.
EACH, SLICES, LISTED, MASKED = "each", "slices", "listed", "masked"
# By operator: inputs, of which the first is the tensor that is touched, and the last one the source, if there is one.
RULES: dict[str, tuple[str, str, str]] = {
    "gather": ("self dim index", TAKE, EACH),
    "take": ("self index", TAKE, EACH),
    "index_select": ("self dim index", TAKE, SLICES),
    "embedding": ("weight indices", TAKE, SLICES),
    "index": ("self indices", TAKE, LISTED),
    "index_fill_": ("self dim index value", REPLACE, SLICES),
    "put_": ("self index source accumulate", REPLACE, EACH),
    "index_put_": ("self indices values accumulate", REPLACE, LISTED),
    "_index_put_impl_": ("self indices values accumulate", REPLACE, LISTED),
    "masked_scatter_": ("self mask source", REPLACE, MASKED),
    **{f"scatter{end}": ("self dim index src", REPLACE, EACH) for end in ("", "_")},
    **{f"scatter_{how}{end}": ("self dim index src", ADD, EACH) for how in ("add", "reduce") for end in ("", "_")},
    **{f"index_copy{end}": ("self dim index source", REPLACE, SLICES) for end in ("", "_")},
    **{f"index_{how}{end}": ("self dim index source", ADD, SLICES) for how in ("add", "reduce") for end in ("", "_")},
}
SOURCES, INDICES = ("src", "source", "values"), ("index", "indices", "mask")
INDEX = "long int"
# torch's number for a loss per sample instead of their sum or mean.
PER_SAMPLE = 0
LOSSES = {
    **{f"nll_loss{kind}_forward": "self target weight reduction" for kind in ("", "2d")},
    **{f"nll_loss{kind}_backward": "grad_output self target weight" for kind in ("", "2d")},
}
BAG = "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset"
TABLES = {
    "embedding_dense_backward": "grad_output indices num_weights",
    "_embedding_bag_dense_backward": "grad indices offset2bag bag_size maximum_indices num_weights",
}
BAGS = {"_embedding_bag": BAG, "_embedding_bag_forward_only": BAG}


class Write(NamedTuple):
    """A tensor that is written: its shape, torch's name of its type, and the number of elements written."""

    shape: Shape
    kind: str
    elements: int


class Touched(NamedTuple):
    """What a call touches.

    Attributes:
        reads: positions among the inputs with the number of elements read there; None for all of them.
        writes: what is written; nothing where the number of chosen elements is unknown.
        operations: floating-point operations.
    """

    reads: tuple[tuple[int, int | None], ...]
    writes: tuple[Write, ...]
    operations: int = 0


def touch_part(call: Call) -> Touched:
    """Return what a call of an operator of FORMULAS touches.

    Raises:
        UnknownError: the trace lacks a shape or a number.
    """
    return TOUCHING[call.operator](call)


def part_cost(call: Call) -> Needed:
    """Return the cost of a call of an operator of FORMULAS.

    Raises:
        UnknownError: the trace lacks a shape or a number, or how much is chosen is data.
    """
    found = touch_part(call)
    if not found.writes:
        raise UnknownError("indices are data")
    read = sum(_input_bytes(call, place, elements) for place, elements in found.reads)
    return Needed(0, found.operations, read + sum(one.elements * ITEM_BYTES[one.kind] for one in found.writes))


def _input_bytes(call: Call, place: int, elements: int | None) -> int:
    kind, shape = call.types[place], call.shapes[place]
    if kind not in ITEM_BYTES:
        return sum(map(prod, shape)) * ITEM_BYTES[INDEX]
    return (call.stored(place) if elements is None else elements) * ITEM_BYTES[kind]


def _touch_chosen(access: str, choice: str, call: Call) -> Touched:
    """Return what a call by one of RULES touches."""
    table, kind = call.shape(call.names[0]), call.types[0]
    made = _made_shape(call, table, choice)
    source = next((name for name in SOURCES if call.has(name)), None)
    given = prod(call.shape(source)) if source else 0
    # Without the list of indices, at least as many elements are written as are given.
    count = prod(made) if made is not None else min(given, prod(table))
    chosen = [place for place, name in enumerate(call.names) if name in INDICES and _told(call, place)]
    reads: list[tuple[int, int | None]] = [(place, None) for place in chosen]
    if access == TAKE:
        taken = () if made is None else (Write(made, kind, count),)
        return Touched(((0, min(count, prod(table))), *reads), taken)
    if source:
        reads.append((call.names.index(source), min(count, given)))
    adds = access == ADD or _accumulates(call)
    touched = min(count, prod(table))
    copied = 0 if call.operator.endswith("_") else prod(table) - touched
    read = ((0, copied + touched * adds), *reads)
    return Touched(read, (Write(table, kind, copied + touched),) if count else (), count if adds else 0)


def _made_shape(call: Call, table: Shape, choice: str) -> Shape | None:
    """Return the shape of the chosen elements; None where the trace does not tell it."""
    if choice == MASKED:
        return None
    if choice == LISTED:
        lists = call.shapes[1] if call.types[1] == "TensorList" else []
        return (*broadcast([tuple(one) for one in lists]), *table[len(lists) :]) if lists else None
    index = call.shape("indices" if "indices" in call.names else "index")
    if choice == EACH or not table:
        return index
    dim = call.value("dim") % len(table) if "dim" in call.names else 0
    return (*table[:dim], *index, *table[dim + 1 :])


def _told(call: Call, place: int) -> bool:
    return call.types[place] in ITEM_BYTES or (call.types[place] == "TensorList" and bool(call.shapes[place]))


def _accumulates(call: Call) -> bool:
    # A text for `reduce`, which a trace leaves out, is the fifth input of `scatter`.
    reduces = call.operator.rstrip("_") == "aten::scatter" and len(call.types) > 4
    return reduces or ("accumulate" in call.names and bool(call.value("accumulate", False)))


def _touch_loss(call: Call) -> Touched:
    """Return what a loss over classes touches: one score per target."""
    target, kind = call.shape("target"), call.types[0]
    rows = min(prod(target), prod(call.shape("self")))
    single = call.value("reduction", 1) != PER_SAMPLE
    weights = ((2, None),) if call.has("weight") else ()
    return Touched(((0, rows), (1, None), *weights), (Write((1,) if single else target, kind, 1 if single else rows),))


def _touch_loss_backward(call: Call) -> Touched:
    """Return what the gradient of such a loss touches: it is zero but for one score per target."""
    scores, weights = call.shape("self"), ((3, None),) if call.has("weight") else ()
    call.shape("target")
    return Touched(((0, None), (2, None), *weights), (Write(scores, call.types[1], prod(scores)),))


def _touch_gradient_of_table(call: Call) -> Touched:
    """Return what the gradient of an embedding touches: the rows' gradients are added to that of the whole table."""
    given, rows = call.shape(call.names[0]), prod(call.shape("indices"))
    table = (call.value("num_weights"), given[-1])
    reads = [(place, None) for place, name in enumerate(call.names[:3]) if call.has(name)]
    return Touched(tuple(reads), (Write(table, call.types[0], prod(table)),), rows * given[-1])


def _touch_bag(call: Call) -> Touched:
    """Return what sums of rows of a table touch."""
    table, rows, bags = call.shape("weight"), prod(call.shape("indices")), prod(call.shape("offsets"))
    bags -= bool(call.value("include_last_offset", False))
    made = (bags, table[-1])
    reads = ((0, min(rows * table[-1], prod(table))), (1, None), (2, None))
    return Touched(reads, (Write(made, call.types[0], prod(made)),), rows * table[-1])


def _touching() -> dict[str, Callable[[Call], Touched]]:
    found: dict[str, Callable[[Call], Touched]] = {
        name: partial(_touch_chosen, access, choice) for name, (_, access, choice) in RULES.items()
    }
    found |= {name: _touch_loss_backward if "backward" in name else _touch_loss for name in LOSSES}
    found |= dict.fromkeys(TABLES, _touch_gradient_of_table) | dict.fromkeys(BAGS, _touch_bag)
    return {f"aten::{name}": touching for name, touching in found.items()}


TOUCHING = _touching()
FORMULAS: dict[str, Callable[[Call], Needed]] = dict.fromkeys(TOUCHING, part_cost)
SIGNATURES = {
    f"aten::{name}": inputs
    for name, inputs in ({name: rule[0] for name, rule in RULES.items()} | LOSSES | TABLES | BAGS).items()
}
