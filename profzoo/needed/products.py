"""What products of matrices and vectors need: 2 m n k operations, as in torch.utils.flop_counter."""

from math import prod

from profzoo.needed.calls import Call, Needed

# Inputs by operator, as torch's schemas name them.
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


def product(call: Call) -> Needed:
    """(..., m, k) times (..., k, n), or a vector where m or n is left out."""
    first, second = call.shape(call.names[0]), call.shape(call.names[1])
    result = (*first[:-1], *(() if len(second) == 1 else second[-1:]))
    moved = call.bytes_of(*call.names[:2]) + prod(result) * call.item_bytes(call.names[0])
    return Needed(2 * prod(result) * first[-1], 0, moved)


def added_product(call: Call) -> Needed:
    """The same added to the first input, one operation an element of the result."""
    inner = Call(call.operator, call.names[1:3], call.shapes[1:3], call.types[1:3], call.values[1:3])
    found = product(inner)
    first, second = call.shape(call.names[1]), call.shape(call.names[2])
    size = prod(first[:-1]) * (1 if len(second) == 1 else second[-1])
    return Needed(found.product_flop, size, found.bytes + call.bytes_of("self"))


FORMULAS = {name: added_product if "add" in name else product for name in SIGNATURES}
