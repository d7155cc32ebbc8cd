"""Says of an operator's call what kind of work it does, and which tensors it reads and writes.

Bytes are counted as if each tensor were read or written once. An expanded dimension, whose stride is 0, is stored once.
What a call writes is not in a trace and follows from its inputs, by the rules of torch's documentation: shapes are
broadcast, a number does not change a tensor's type, and a comparison gives booleans.
"""

import ast
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from profzoo.op_costs import elementwise, layers
from profzoo.op_costs.operator_calls import ITEM_BYTES, LISTED, Call, Shape, UnknownError, count_stored, pair_strides

ATEN = "aten::"
POINTWISE, REDUCTION, SOFTMAX, NORM, COPY, FILL, GATHER = (
    "pointwise", "reduction", "softmax", "norm", "copy", "fill", "gather"
)  # fmt: skip
SCATTER, PRODUCT, OPAQUE, LISTS = "scatter", "product", "opaque", "lists"
# Kinds of work that one kernel can do in a row without writing what is between.
FUSIBLE = frozenset((POINTWISE, REDUCTION, SOFTMAX, NORM, COPY, FILL, GATHER))
# Operators beside those that op_costs has formulas for, by kind of work. `masked_fill`, out of place, is a copy and a
# fill in place, both of which are operators of their own.
NAMES = {
    "comparison": "eq ne lt gt le ge logical_not logical_and logical_or logical_xor isnan isinf isfinite",
    POINTWISE: "erfc square log1p expm1 exp2 log2 floor ceil round trunc remainder fmod atan2 softplus "
    "softplus_backward mish mish_backward hardswish hardswish_backward hardsigmoid hardsigmoid_backward elu_backward "
    "glu glu_backward masked_fill_ bitwise_and bitwise_or bitwise_not native_dropout native_dropout_backward "
    "bernoulli_ tril triu nan_to_num smooth_l1_loss huber_loss binary_cross_entropy cumsum flip roll",
    REDUCTION: "sum mean amax amin max min var var_mean std norm linalg_vector_norm logsumexp any all prod argmax "
    "argmin mse_loss l1_loss nll_loss_forward nll_loss2d_forward",
    SOFTMAX: "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
    NORM: "_fused_rms_norm _fused_rms_norm_backward rms_norm",
    COPY: "copy_ cat",
    FILL: "fill_ zero_ nll_loss_backward nll_loss2d_backward",
    GATHER: "index gather index_select embedding take",
    SCATTER: "scatter_ scatter scatter_add_ scatter_add scatter_reduce_ scatter_reduce index_put_ _index_put_impl_ "
    "index_add_ index_add index_copy_ index_copy index_reduce_ index_reduce index_fill_ put_ masked_scatter_ "
    "embedding_dense_backward _embedding_bag _embedding_bag_forward_only _embedding_bag_dense_backward nonzero "
    "masked_select sort topk",
    PRODUCT: "mm bmm addmm baddbmm addmv mv dot",
    LISTS: "_foreach_lerp_ _foreach_addcdiv_ _foreach_addcmul_ _foreach_sqrt _foreach_pow _foreach_reciprocal_ "
    "_foreach_norm _foreach_maximum_ _foreach_clamp_max_",
}
COMPARISONS = frozenset(NAMES["comparison"].split())
FORMULAS = {
    POINTWISE: (*elementwise.POINTWISE, *COMPARISONS),
    NORM: (*elementwise.BATCH_NORMS, *elementwise.LAYER_NORMS, *elementwise.NORMS_BACKWARD),
    OPAQUE: [name.removeprefix(ATEN) for name in layers.FORMULAS],
    LISTS: tuple(elementwise.LISTS),
}
INSIDE = {f"{name.removesuffix('_')}_": POINTWISE for name in (*FORMULAS[POINTWISE], *NAMES[POINTWISE].split())}
KINDS: dict[str, str] = (
    INSIDE
    | {name: kind for kind, names in FORMULAS.items() for name in names if name != "masked_fill"}
    | {name: kind for kind, names in NAMES.items() if kind != "comparison" for name in names.split()}
)


class Tensor(NamedTuple):
    """A tensor that a call reads or writes.

    Attributes:
        shape: its shape; item: bytes per element; kind: torch's name of the type; stored: elements that it stores.
        part: whether it is a part of a larger tensor, by its strides.
    """

    shape: Shape
    item: int
    kind: str
    stored: int
    part: bool = False

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Return the bytes of the stored elements."""
        return self.stored * self.item


class Effects(NamedTuple):
    """What a call does: its kind of work, and the tensors that it reads and writes."""

    kind: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Return the bytes read and written."""
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))


def kind_of(operator: str) -> str | None:
    """Return the kind of an operator's work; None for operators that only call others, and for unknown ones.

    >>> kind_of("aten::mul"), kind_of("aten::softmax"), kind_of("aten::_softmax")
    ('pointwise', None, 'softmax')
    """
    return KINDS.get(operator[len(ATEN) :]) if operator.startswith(ATEN) else None


def call_effects(
    operator: str,
    dims: Sequence[Any],
    types: Sequence[str],
    values: Sequence[str],
    strides: Sequence[Any] = (),
    listed: str = LISTED,
) -> Effects:
    """Return what a call does; an operator of no known kind reads its inputs, and what it writes is unknown.

    Args:
        operator: its name, such as `aten::mul`.
        dims, types, values, strides: one entry per input, as a torch.profiler trace has them.
        listed: type of the tensors in lists, which a trace does not tell.

    >>> found = call_effects("aten::mul", [[4, 6], [6]], ["float", "float"], ["", ""])
    >>> found.kind, found.bytes, found.writes[0].shape
    ('pointwise', 216, (4, 6))
    """
    name, kind = operator.removeprefix(ATEN), kind_of(operator) or OPAQUE
    reads = _tensors(dims, types, strides, listed)
    # A result that is still empty gets its size in the call.
    reads = tuple(one for one in reads if one.elements)
    given = [one for one in reads if one.shape] or list(reads)
    if not given:
        # The trace does not tell what it works on.
        return Effects(OPAQUE, reads, ())
    if kind == COPY and name == "copy_":
        # The first input is the one that is written.
        return Effects(kind, reads[1:2], reads[:1])
    if operator in elementwise.FORMULAS:
        call = Call(operator, elementwise.SIGNATURES[operator].split(), dims, types, values, strides=strides)
        return _touched(kind, call) or Effects(OPAQUE, reads, ())
    if kind == FILL:
        return Effects(kind, (), (given[0],))
    if kind == SCATTER:
        return _chosen(name, given, values)
    if kind == LISTS:
        return Effects(kind, tuple(given), tuple(given[: _count(dims, types)]))
    if name in elementwise.POINTWISE and name != "masked_fill_":
        # A further tensor among the inputs is the one into which the result is written.
        given = given[: 1 if operator in elementwise.ONE else 3 if operator in elementwise.THREE else 2]
    return Effects(kind, tuple(given), _written(name, kind, given, values))


def _count(dims: Sequence[Any], types: Sequence[str]) -> int:
    """Return the number of tensors in the first list."""
    return len(dims[0]) if types and types[0] == "TensorList" else 1


def _tensors(dims: Sequence[Any], types: Sequence[str], strides: Sequence[Any], listed: str) -> tuple[Tensor, ...]:
    """Return the tensors among inputs; listed: type of those in lists."""
    found = []
    for place, (shape, kind) in enumerate(zip(dims, types, strict=False)):
        steps = strides[place] if place < len(strides) else []
        if kind == "TensorList":
            pairs = pair_strides(shape, steps)
            found += [_tensor(one, listed, own) for one, own in pairs if isinstance(one, list)]
        elif kind in ITEM_BYTES and isinstance(shape, list):
            found.append(_tensor(shape, kind, steps))
    return tuple(found)


def _tensor(shape: Sequence[int], kind: str, steps: Sequence[int]) -> Tensor:
    known = [(step, size) for step, size in zip(steps, shape, strict=False) if size != 1 and step]
    return Tensor(tuple(shape), ITEM_BYTES[kind], kind, count_stored(shape, steps), not _is_dense(known))


def _is_dense(known: Sequence[tuple[int, int]]) -> bool:
    """Return whether elements follow one another in some order of the dimensions; known: strides and sizes.

    >>> _is_dense([(1, 4), (4, 3)]), _is_dense([(8, 3), (1, 4)])
    (True, False)
    """
    following = 1
    for step, size in sorted(known):
        if step != following:
            return False
        following = step * size
    return True


def _plain(shape: Shape, kind: str) -> Tensor:
    return Tensor(shape, ITEM_BYTES[kind], kind, prod(shape))


def _widest(given: Sequence[Tensor]) -> str:
    """Return the type of a result: floating point before integers, wide before narrow."""
    floating = [one for one in given if one.kind in FLOATING]
    return max(floating or given, key=lambda one: one.item).kind


FLOATING = frozenset(("double", "float", "c10::Half", "c10::BFloat16", "c10::complex<float>", "c10::complex<double>"))


def _written(name: str, kind: str, given: Sequence[Tensor], values: Sequence[str]) -> tuple[Tensor, ...]:
    first = given[0]
    if kind == POINTWISE:
        shape = elementwise.broadcast([one.shape for one in given])
        inside = name.endswith("_")
        result = first.kind if inside else "bool" if name in COMPARISONS else _widest(given)
        made = _plain(first.shape if inside else shape, result)
        # A dropout keeps its mask.
        return (made, _plain(shape, "bool")) if name == "native_dropout" else (made,)
    if kind == REDUCTION:
        return (_plain(reduced_shape(first.shape, values), first.kind),)
    if kind == SOFTMAX:
        wide = name in ("_softmax", "_log_softmax") and values[2:3] == ["True"]
        return (_plain(first.shape, "float" if wide else first.kind),)
    if kind == COPY:
        return (_plain(_joined([one.shape for one in given], values), _widest(given)),)
    if kind == PRODUCT:
        return _product(name, given)
    return (_plain(first.shape, first.kind),) if kind == NORM else ()


def _joined(shapes: Sequence[Shape], values: Sequence[str]) -> Shape:
    """Return the shape of tensors put one behind the other along the dimension that is the last of the values."""
    first, dims = shapes[0], reduced_dims(values[-1], len(shapes[0])) if len(values) > 1 else {0}
    if not dims or {len(shape) for shape in shapes} != {len(first)}:
        return (sum(map(prod, shapes)),)
    return tuple(sum(s[place] for s in shapes) if place in dims else size for place, size in enumerate(first))


def _product(name: str, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    left, right = given[-2:] if len(given) >= 2 else (given[0], given[0])
    if name in ("mm", "addmm", "bmm", "baddbmm") and len(left.shape) >= 2 and len(right.shape) >= 2:
        return (_plain((*left.shape[:-1], right.shape[-1]), left.kind),)
    return ()


def _touched(kind: str, call: Call) -> Effects | None:
    """Return the effects of a call that touches a part of a tensor; None where the trace does not tell its inputs."""
    try:
        found = elementwise.touch_part(call)
    except (UnknownError, IndexError, TypeError):
        return None
    reads: list[Tensor] = []
    for place, elements in found.reads:
        own = slice(place, place + 1)
        # Indices in a list are whole numbers, of which the trace does not tell the type.
        given = _tensors(call.shapes[own], call.types[own], call.strides[own], elementwise.INDEX)
        reads += [one if elements is None else one._replace(stored=min(one.stored, elements)) for one in given]
    writes = (_plain(one.shape, one.kind)._replace(stored=one.elements) for one in found.writes)
    return Effects(kind, tuple(reads), tuple(writes))


def _chosen(name: str, given: Sequence[Tensor], values: Sequence[str]) -> Effects:
    """Return the effects of choosing elements by their values: how many are found, or in which order they are."""
    first = given[0]
    if name in ("sort", "topk"):
        shape = list(first.shape)
        if name == "topk" and shape:
            (count,), (dim,) = (ast.literal_eval(f"[{one or otherwise}]") for one, otherwise in
                                zip([*values[1:3], "", ""][:2], ("1", "-1"), strict=True))  # fmt: skip
            shape[dim] = count
        return Effects(SCATTER, (first,), (_plain(tuple(shape), first.kind), _plain(tuple(shape), elementwise.INDEX)))
    # What is chosen by a mask is read as far as it is chosen, which is data; numbers that are not zero are looked for.
    looked = tuple(given) if name == "nonzero" else (first._replace(stored=0), *given[1:])
    return Effects(SCATTER, looked, ())


def reduced_shape(shape: Shape, values: Sequence[str]) -> Shape:
    """Return the shape of a reduction's result, by its dimensions among the values; a single number without any.

    >>> reduced_shape((8, 16, 32), ["", "[-1]", "True", ""]), reduced_shape((8, 16), ["", ""])
    ((8, 16, 1), (1,))
    """
    dims = next((found for value in values[1:] if (found := reduced_dims(value, len(shape))) is not None), None)
    if not dims:
        return (1,)
    return tuple(1 if place in dims else size for place, size in enumerate(shape))


def reduced_dims(value: str, rank: int) -> set[int] | None:
    """Return the dimensions that a value names; None if it names none.

    >>> reduced_dims("[-1, 0]", 3), reduced_dims("", 3), reduced_dims("True", 3)
    ({0, 2}, None, None)
    """
    try:
        found = ast.literal_eval(value) if value else None
    except (ValueError, SyntaxError):
        return None
    numbers = [found] if type(found) is int else found
    if not isinstance(numbers, list | tuple) or not all(type(one) is int and -rank <= one < rank for one in numbers):
        return None
    return {one % rank for one in numbers} if numbers else None
