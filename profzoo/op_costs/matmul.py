"""Costs of products of matrices and vectors: 2 m n k operations, as in torch.utils.flop_counter."""

from math import prod

from profzoo.op_costs.operator_calls import Call, Needed

# Names of the inputs by operator, from torch's schemas.
SIGNATURES = {
    "aten::mm": "self mat2",
    "aten::bmm": "self mat2",
    "aten::mv": "self vec",
    "aten::dot": "self tensor",
    "aten::addmm": "self mat1 mat2 beta alpha",
    "aten::_addmm_activation": "self mat1 mat2 beta alpha use_gelu",
    "aten::baddbmm": "self batch1 batch2 beta alpha",
    "aten::addbmm": "self batch1 batch2 beta alpha",
    "aten::addmv": "self mat vec beta alpha",
}
# This operator adds up the products of the batch.
SUMMED = "aten::addbmm"


def product_cost(call: Call) -> Needed:
    """Return the cost of (..., m, k) times (..., k, n); without m or n, a factor is a vector.

    Raises:
        UnknownError: the trace lacks the shape of a factor.
    """
    first, second = call.names[:2]
    found, result = _product(call, first, second)
    return Needed(found, 0, call.bytes_of(first, second) + result * call.item_bytes(first))


def addmm_cost(call: Call) -> Needed:
    """Return the cost of a product that is added to the first input; the sum takes one operation per element.

    Raises:
        UnknownError: the trace lacks the shape of a factor.
    """
    first, second = call.names[1:3]
    found, made = _product(call, first, second)
    # If the products of a batch are added up, there is one result.
    result = made // call.shape(first)[0] if call.operator == SUMMED else made
    return Needed(found, made, call.bytes_of("self", first, second) + result * call.item_bytes(first))


def _product(call: Call, first: str, second: str) -> tuple[int, int]:
    """Return the number of operations, and the number of elements of the result."""
    one, other = call.shape(first), call.shape(second)
    made = prod((*one[:-1], *(() if len(other) == 1 else other[-1:])))
    return 2 * made * one[-1], made


FORMULAS = {name: addmm_cost if "add" in name else product_cost for name in SIGNATURES}
