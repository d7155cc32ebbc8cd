"""Finds updates of weights one tensor at a time, or one operation at a time for all tensors: optimizers, averages.

torch's optimizers take `foreach`, by which an operation updates all tensors at once, and `fused`, by which one kernel
does the whole update.
"""

from collections.abc import Iterator, Sequence
from math import ceil

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import LISTS, POINTWISE

LOOPED, FOREACH, AVERAGE, NORMS = (
    "looped optimizer",
    "foreach optimizer",
    "looped weight average",
    "looped gradient norms",
)
# So many operations of one tensor are a loop over tensors.
LEAST = 16
NORM = ("norm", "linalg_vector_norm")
AVERAGING = ("mul_", "add_", "lerp_", "copy_", "mul", "add", "sub", "sub_")
# Where programs look after their weights.
OUTSIDE = ("optimizer", "step")
# Tensors and elements that one kernel of a fused update takes (multi_tensor_apply.cuh: lists of up to 36 tensors of
# four kinds; 320 blocks of 65,536 elements).
TENSORS, ELEMENTS = 36, 320 * 65_536
# Tensors read and written by element of a weight. Adam: weight, gradient and two means; the gradient is only read.
ADAM, MOMENTUM, PLAIN, AVERAGED = 7, 5, 3, 3


def find_updates(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the optimizer's operations, weight averages, and norms of gradients that are taken one by one."""
    free = [call for call in flow.calls if call.place not in taken and call.direction != BACKWARD]
    own = [call for call in free if call.updates or call.direction == "optimizer"]
    stepping = [call for call in own if call.updates]
    yield from _optimizer(stepping or own)
    others = [call for call in free if not call.updates and call.direction in OUTSIDE and stepping]
    averaging = [call for call in others if call.operator in AVERAGING and _is_large(call)]
    if len(averaging) >= LEAST:
        size = _bytes_of(averaging, _updating(averaging))
        yield Chain(AVERAGE, tuple(averaging), AVERAGED * size, _launches(averaging, _updating(averaging)))
    norms = [call for call in others if call.operator in NORM]
    if len(norms) >= LEAST:
        yield Chain(NORMS, tuple(norms), float(sum(call.reads[0].bytes for call in norms)), ceil(len(norms) / TENSORS))


def _is_large(call: Call) -> bool:
    return call.kind == POINTWISE and bool(call.writes) and call.writes[0].elements > 1


def _optimizer(calls: Sequence[Call]) -> Iterator[Chain]:
    single = [call for call in calls if call.kind == POINTWISE and call.writes]
    lists = [call for call in calls if call.kind == LISTS and not call.operator.startswith("_fused")]
    for pattern, own in ((LOOPED, single), (FOREACH, lists)):
        if sum(call.count for call in own) < (LEAST if pattern == LOOPED else 2) or not own:
            continue
        last = _updating(own)
        size = _bytes_of(own, last)
        times = ADAM if _any(own, "addcdiv") else MOMENTUM if _any(own, "mul_") else PLAIN
        chain = Chain(pattern, tuple(own), times * size, _launches(own, last))
        if size and chain.fused_bytes < chain.bytes:
            yield chain


def _any(calls: Sequence[Call], part: str) -> bool:
    return any(part in call.operator for call in calls)


def _updating(calls: Sequence[Call]) -> str:
    """Return the operator that changes the weights: the last one of an update."""
    return next((call.operator for call in calls[::-1] if call.operator.endswith("_")), calls[-1].operator)


def _bytes_of(calls: Sequence[Call], operator: str) -> float:
    return float(sum(tensor.bytes for call in calls if call.operator == operator for tensor in call.writes))


def _launches(calls: Sequence[Call], operator: str) -> float:
    written = [tensor for call in calls if call.operator == operator for tensor in call.writes]
    return float(max(ceil(len(written) / TENSORS), ceil(sum(one.elements for one in written) / ELEMENTS), 1))
