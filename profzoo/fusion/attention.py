"""Finds attention that is written out: a product that makes scores, their softmax, and a product with the result."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain, backward_calls
from profzoo.fusion.row_patterns import find_softmax_groups
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import COPY, PRODUCT, Tensor

ATTENTION = "attention"
PRODUCTS = ("bmm", "baddbmm")
TORCHS = "scaled_dot_product_attention"
# Between the two products are scaling, masks, casts and dropout, and the making of masks.
WITHIN = 40
# The backward pass of a fused kernel computes the scores again: five products instead of four.
AGAIN = 5 / 4
# A fused kernel leaves out the blocks of scores that a causal mask covers: with it, it is 1.7 to 1.8 times as fast (Dao
# 2023, FlashAttention-2, arXiv:2307.08691, section 3.1).
CAUSAL = 1.7
MASKING = ("masked_fill", "masked_fill_", "where")
BOOL = "bool"


def find_attention(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield written-out attention, forward and backward; what remains are its inputs, its result, and the products."""
    for group in find_softmax_groups(flow, taken):
        calls = _around(flow, group, taken)
        if not calls:
            continue
        first, last = (call for call in (_product(calls), _product(calls[::-1])) if call)
        inputs = [*_inputs(first), _weighted(last, flow.calls[group[-1]].writes[0].elements)]
        moved = sum(tensor.bytes for tensor in inputs) + sum(tensor.bytes for tensor in last.writes)
        saved = CAUSAL if any(map(masks_square, calls)) else 1.0
        products = sum(call.ns for call in calls if call.kind == PRODUCT) / saved
        yield Chain(ATTENTION, calls, moved, 1.0, products)
        behind = backward_calls(flow, calls, taken)
        if any(call.operator in PRODUCTS for call in behind):
            products = sum(call.ns for call in behind if call.kind == PRODUCT) / saved
            # Inputs, result and its gradient are read; gradients of the inputs are written.
            moved = 2 * moved + sum(tensor.bytes for tensor in last.writes)
            yield Chain(ATTENTION, behind, moved, 1.0, AGAIN * products)


def _product(calls: tuple[Call, ...]) -> Call | None:
    return next((call for call in calls if call.operator in PRODUCTS), None)


def masks_square(call: Call) -> bool:
    """Return whether a call masks scores by one square of flags for all samples and heads, as causal attention does.

    A mask of padding differs between samples.
    """
    squares = [one for one in call.reads if one.kind == BOOL and len(one.shape) >= 2]
    return call.operator in MASKING and any(
        one.shape[-1] == one.shape[-2] > 1 and one.elements == one.shape[-1] ** 2 for one in squares
    )


def _inputs(call: Call) -> tuple:
    return call.reads[-2:]


def _weighted(call: Call, scores: int) -> Tensor:
    """Return the input of a product that is not the scores, which may be on either side."""
    left, right = _inputs(call)
    return right if left.elements == scores else left


def _around(flow: Flow, group: list[int], taken: frozenset[int]) -> tuple[Call, ...]:
    """Return the calls from the product that makes scores to the one that reads their softmax; none without both."""
    scores = flow.calls[group[-1]].writes[0].elements
    if any(TORCHS in name for name in flow.calls[group[0]].around):
        # torch's own function, which has no fused kernel for these inputs.
        return ()
    first = _search(flow, range(group[0] - 1, max(group[0] - WITHIN, -1), -1), scores, made=True)
    last = _search(flow, range(group[-1] + 1, min(group[-1] + WITHIN, len(flow.calls))), scores, made=False)
    if first is None or last is None:
        return ()
    places = [place for place in range(first, last + 1) if place not in taken]
    calls = [flow.calls[place] for place in places if flow.calls[place].fusible or place in (first, last)]
    # A product copies inputs first whose layout it cannot read.
    place = first - 1
    while place >= 0 and place not in taken and flow.calls[place].kind == COPY and _of_product(flow.calls[place]):
        calls.insert(0, flow.calls[place])
        place -= 1
    return tuple(calls)


def _of_product(call: Call) -> bool:
    return bool({"aten::matmul", "aten::einsum"} & set(call.around))


def _search(flow: Flow, places: range, scores: int, made: bool) -> int | None:
    """Return the nearest product that made the scores or reads them; None if another product comes first."""
    for place in places:
        call = flow.calls[place]
        if call.operator in PRODUCTS:
            sizes = [one.elements for one in (call.writes if made else _inputs(call))]
            return place if scores in sizes else None
        if call.kind == PRODUCT:
            return None
    return None
