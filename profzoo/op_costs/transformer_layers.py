"""Costs of fused transformer operators, which run in inference: attention with projections, and whole layers."""

from math import prod

from profzoo.op_costs.attention import SOFTMAX
from profzoo.op_costs.elementwise import GELU, NORMALISED
from profzoo.op_costs.operator_calls import Call, Needed, UnknownError

SIGNATURES = {
    "aten::_native_multi_head_attention": "query key value embed_dim num_head qkv_weight qkv_bias proj_weight "
    "proj_bias",
    "aten::_transformer_encoder_layer_fwd": "src embed_dim num_heads qkv_weight qkv_bias proj_weight proj_bias "
    "use_gelu norm_first eps norm_weight_1 norm_bias_1 norm_weight_2 norm_bias_2 ffn_weight_1 ffn_bias_1 ffn_weight_2 "
    "ffn_bias_2",
}


def attention_cost(call: Call) -> Needed:
    """Return the cost of attention with all projections, for inputs of shape (batch, positions, width).

    Raises:
        UnknownError: the trace lacks a shape, or the input has no three dimensions.
    """
    return _attention(call, "query", "num_head")


def layer_cost(call: Call) -> Needed:
    """Return the cost of an encoder layer: attention and two matrix products, each with residual sum and normalisation.

    The layer is the one of Vaswani et al., "Attention Is All You Need", 2017.

    Raises:
        UnknownError: the trace lacks a shape, or the input has no three dimensions.
    """
    found = _attention(call, "src", "num_heads")
    source, wide = call.shape("src"), call.shape("ffn_weight_1")[0]
    places = prod(source[:-1])
    products = 4 * places * wide * source[-1]
    between = places * wide * (1 + (GELU if call.value("use_gelu") else 0))
    # One bias, two residual sums and two normalisations.
    others = between + places * source[-1] * (1 + 2 + 2 * NORMALISED)
    return Needed(
        found.product_flop + products,
        found.other_flop + others,
        found.bytes + call.bytes_of("ffn_weight_1", "ffn_weight_2"),
    )


def _attention(call: Call, source: str, heads: str) -> Needed:
    given = call.shape(source)
    if len(given) != 3:
        raise UnknownError("lengths are data")
    batch, places, width = given
    scores = batch * places * places
    products = 2 * batch * places * (prod(call.shape("qkv_weight")) + prod(call.shape("proj_weight")))
    others = SOFTMAX * scores * call.value(heads) + 4 * batch * places * width
    moved = 2 * call.bytes_of(source) + call.bytes_of("qkv_weight", "proj_weight")
    return Needed(products + 4 * scores * width, others, moved)


FORMULAS = {"aten::_native_multi_head_attention": attention_cost, "aten::_transformer_encoder_layer_fwd": layer_cost}
