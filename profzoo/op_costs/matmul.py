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
    "aten::_int_mm": "self mat2",
    "aten::_scaled_mm": "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum",
}
# Bytes per element of what products in 8 bits return: sums of int8 are int32; of fp8, by torch's number of the asked
# type, without one the type of the factors.
INT_BYTES = 4
OUT_BYTES = {5: 2, 6: 4, 15: 2}
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


def eight_bit_cost(call: Call) -> Needed:
    """Return the cost of a product of two matrices in int8 or fp8, whose result is wider; a bias is added to it.

    Raises:
        UnknownError: the trace lacks the shape of a factor.
    """
    found, made = _product(call, "self", "mat2")
    if call.operator == "aten::_int_mm":
        return Needed(found, 0, call.bytes_of("self", "mat2") + made * INT_BYTES)
    item = OUT_BYTES.get(call.value("out_dtype", -1), call.item_bytes("self"))
    read = call.bytes_of("self", "mat2", "scale_a", "scale_b", "bias")
    return Needed(found, made if call.has("bias") else 0, read + made * item)


def _product(call: Call, first: str, second: str) -> tuple[int, int]:
    """Return the number of operations, and the number of elements of the result."""
    one, other = call.shape(first), call.shape(second)
    made = prod((*one[:-1], *(() if len(other) == 1 else other[-1:])))
    return 2 * made * one[-1], made


FORMULAS = {name: addmm_cost if "add" in name else product_cost for name in SIGNATURES} | {
    "aten::_int_mm": eight_bit_cost,
    "aten::_scaled_mm": eight_bit_cost,
}
