"""Costs of attention: products of queries with keys, and of their weights with values (torch.utils.flop_counter).

A mask that leaves out half of the products, as of texts that are read in order, is not looked at, as there. Backward
the first product is made again, and each of both has two gradients.
"""

from math import prod

from profzoo.op_costs.operator_calls import Call, Needed, UnknownError

# Softmax of a row: largest taken off, exponential, sum, division.
SOFTMAX, SOFTMAX_BACKWARD = 4, 4
QKV = "query key value"
# Where heads come before places, and where behind them.
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
HEADS_BEHIND = {
    "aten::_efficient_attention_forward": f"{QKV} bias cu_seqlens_q cu_seqlens_k",
    "aten::_flash_attention_forward": f"{QKV} cum_seq_q cum_seq_k",
    "aten::_efficient_attention_backward": f"grad_out_ {QKV} bias out cu_seqlens_q cu_seqlens_k",
    "aten::_flash_attention_backward": f"grad_out {QKV} out logsumexp cum_seq_q cum_seq_k",
}
SIGNATURES = HEADS_FIRST | HEADS_BEHIND


def heads_first_cost(call: Call) -> Needed:
    """Return the cost for inputs (batch, heads, positions, width)."""
    return _attention(call, 2)


def heads_last_cost(call: Call) -> Needed:
    """Return the cost for inputs (batch, positions, heads, width); packed batches of unequal lengths are unknown."""
    if any(call.has(name) for name in call.names if name.startswith("cu")):
        raise UnknownError("lengths are data")
    return _attention(call, 1)


def _attention(call: Call, places: int) -> Needed:
    query, key, value = (call.shape(name) for name in QKV.split())
    if len(query) != 4:
        raise UnknownError("queries of no batch")
    # Scores, one for each query and key of each head.
    scores = prod(query[:3]) * key[places]
    moved = call.bytes_of(*QKV.split())
    result = prod((*query[:3], value[3])) * call.item_bytes("query")
    if call.names[0].startswith("grad"):
        products = 2 * scores * (3 * query[3] + 2 * value[3])
        # The result, its gradient and the inputs are read, and the inputs' gradients written.
        return Needed(products, (SOFTMAX + SOFTMAX_BACKWARD) * scores, 2 * moved + 2 * result)
    return Needed(2 * scores * (query[3] + value[3]), SOFTMAX * scores, moved + result)


FORMULAS = dict.fromkeys(HEADS_FIRST, heads_first_cost) | dict.fromkeys(HEADS_BEHIND, heads_last_cost)
