"""Costs of attention: products of queries with keys, and of their weights with values (torch.utils.flop_counter).

As in torch's counter, a causal mask is ignored, although it makes half of the products unnecessary. The backward pass
computes the first product again, and two gradients of each product.
"""

from math import prod

from profzoo.op_costs.operator_calls import Call, Needed, UnknownError

# Operations per score of a softmax: subtraction of the largest score, exponential, sum, division.
SOFTMAX, SOFTMAX_BACKWARD = 4, 4
QKV = "query key value"
# Inputs by operator, for inputs (batch, heads, positions, width).
HEADS_FIRST = {
    "aten::_scaled_dot_product_efficient_attention": QKV,
    "aten::_scaled_dot_product_flash_attention": QKV,
    "aten::_scaled_dot_product_cudnn_attention": QKV,
    "aten::_scaled_dot_product_flash_attention_for_cpu": QKV,
    "aten::_scaled_dot_product_efficient_attention_backward": f"grad_out_ {QKV}",
    "aten::_scaled_dot_product_flash_attention_backward": f"grad_out {QKV}",
    "aten::_scaled_dot_product_cudnn_attention_backward": f"grad_out {QKV}",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": f"grad_out {QKV}",
}
# Inputs by operator, for inputs (batch, positions, heads, width).
HEADS_BEHIND = {
    "aten::_efficient_attention_forward": f"{QKV} bias cu_seqlens_q cu_seqlens_k",
    "aten::_flash_attention_forward": f"{QKV} cum_seq_q cum_seq_k",
    "aten::_efficient_attention_backward": f"grad_out_ {QKV} bias out cu_seqlens_q cu_seqlens_k",
    "aten::_flash_attention_backward": f"grad_out {QKV} out logsumexp cum_seq_q cum_seq_k",
}
SIGNATURES = HEADS_FIRST | HEADS_BEHIND


def heads_first_cost(call: Call) -> Needed:
    """Return the cost for inputs of shape (batch, heads, positions, width).

    Raises:
        UnknownError: the trace lacks a shape, or the query has no four dimensions.
    """
    return _attention(call, 2)


def heads_last_cost(call: Call) -> Needed:
    """Return the cost for inputs of shape (batch, positions, heads, width).

    Raises:
        UnknownError: the trace lacks a shape, the query has no four dimensions, or sequences of unequal lengths are
            packed, because their lengths are not in the trace.
    """
    if any(call.has(name) for name in call.names if name.startswith("cu")):
        raise UnknownError("lengths are data")
    return _attention(call, 1)


def _attention(call: Call, places: int) -> Needed:
    query, key, value = (call.shape(name) for name in QKV.split())
    if len(query) != 4:
        raise UnknownError("queries of no batch")
    # One score per head, query and key.
    scores = prod(query[:3]) * key[places]
    moved = call.bytes_of(*QKV.split())
    result = prod((*query[:3], value[3])) * call.item_bytes("query")
    if call.names[0].startswith("grad"):
        products = 2 * scores * (3 * query[3] + 2 * value[3])
        # The result, its gradient and the inputs are read; the gradients of the inputs are written.
        return Needed(products, (SOFTMAX + SOFTMAX_BACKWARD) * scores, 2 * moved + 2 * result)
    return Needed(2 * scores * (query[3] + value[3]), SOFTMAX * scores, moved + result)


FORMULAS = dict.fromkeys(HEADS_FIRST, heads_first_cost) | dict.fromkeys(HEADS_BEHIND, heads_last_cost)
