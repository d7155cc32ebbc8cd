"""Costs of layers: products of matrices, attention, convolutions and recurrent layers."""

from dataclasses import replace
from math import prod

from profzoo.op_costs.elementwise import GELU, NORMALISED
from profzoo.op_costs.operator_calls import Call, Needed, Shape, UnknownError

# Costs of products of matrices and vectors: 2 m n k operations, as in torch.utils.flop_counter.

# Names of the inputs by operator, from torch's schemas.
MATMUL_SIGNATURES = {
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


MATMUL_FORMULAS = {name: addmm_cost if "add" in name else product_cost for name in MATMUL_SIGNATURES} | {
    "aten::_int_mm": eight_bit_cost,
    "aten::_scaled_mm": eight_bit_cost,
}


# Costs of attention: products of queries with keys, and of their weights with values (torch.utils.flop_counter).
#
# As in torch's counter, a causal mask is ignored, although it makes half of the products unnecessary. The backward pass
# computes the first product again, and two gradients of each product.

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
    # In latent attention the values are the first numbers of the keys: rows as far apart, and as the keys are wide.
    apart = call.strides_of("key")
    inside = value[3] < key[3] and key[3] in apart and [*call.strides_of("value")] == [*apart]
    moved = call.bytes_of(*QKV.split()[: 2 if inside else 3])
    result = prod((*query[:3], value[3])) * call.item_bytes("query")
    if call.names[0].startswith("grad"):
        products = 2 * scores * (3 * query[3] + 2 * value[3])
        # The result, its gradient and the inputs are read; the gradients of the inputs are written.
        written = replace(call, strides=()).bytes_of(*QKV.split())
        return Needed(products, (SOFTMAX + SOFTMAX_BACKWARD) * scores, moved + written + 2 * result)
    return Needed(2 * scores * (query[3] + value[3]), SOFTMAX * scores, moved + result)


# Costs of fused transformer operators, which run in inference: attention with projections, and whole layers.

TRANSFORMER_SIGNATURES = {
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
    return _fused_attention(call, "query", "num_head")


def layer_cost(call: Call) -> Needed:
    """Return the cost of an encoder layer: attention and two matrix products, each with residual sum and normalisation.

    The layer is the one of Vaswani et al., "Attention Is All You Need", 2017.

    Raises:
        UnknownError: the trace lacks a shape, or the input has no three dimensions.
    """
    found = _fused_attention(call, "src", "num_heads")
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


def _fused_attention(call: Call, source: str, heads: str) -> Needed:
    given = call.shape(source)
    if len(given) != 3:
        raise UnknownError("lengths are data")
    batch, places, width = given
    scores = batch * places * places
    products = 2 * batch * places * (prod(call.shape("qkv_weight")) + prod(call.shape("proj_weight")))
    others = SOFTMAX * scores * call.value(heads) + 4 * batch * places * width
    moved = 2 * call.bytes_of(source) + call.bytes_of("qkv_weight", "proj_weight")
    return Needed(products + 4 * scores * width, others, moved)


# Costs of convolutions, forward and backward, grouped and transposed.
#
# Each element of the result is a sum over the channels of its group and over the kernel. This takes 2 N C_out O C_in/g
# K operations, for batch size N, g groups, O points of the result and K points of the kernel. For a transposed
# convolution, O is the number of points of the input. The gradients of input and weight take as many operations each.
# (torch's FlopCounterMode counts g times as many for the weight's gradient, because its formula ignores groups.)

CONVOLUTION_SIGNATURES = {
    "aten::convolution": "input weight bias stride padding dilation transposed output_padding groups",
    "aten::_convolution": "input weight bias stride padding dilation transposed output_padding groups",
    "aten::cudnn_convolution": "self weight padding stride dilation groups",
    "aten::cudnn_convolution_relu": "self weight bias stride padding dilation groups",
    "aten::cudnn_convolution_add_relu": "self weight z alpha bias stride padding dilation groups",
    "aten::cudnn_convolution_transpose": "self weight padding output_padding stride dilation groups",
    "aten::mkldnn_convolution": "self weight bias padding stride dilation groups",
    "aten::_conv_depthwise2d": "self weight kernel_size bias stride padding dilation",
    "aten::conv_depthwise3d": "self weight kernel_size bias stride padding dilation",
    "aten::thnn_conv2d": "self weight kernel_size bias stride padding",
    "aten::_slow_conv2d_forward": "self weight kernel_size bias stride padding",
    "aten::slow_conv3d_forward": "self weight kernel_size bias stride padding",
    "aten::slow_conv_dilated2d": "self weight kernel_size bias stride padding dilation",
    "aten::slow_conv_transpose2d": "self weight kernel_size bias stride padding output_padding dilation",
    "aten::convolution_backward": "grad_output input weight bias_sizes stride padding dilation transposed "
    "output_padding groups output_mask",
}


def forward_cost(call: Call) -> Needed:
    """Return the cost of the forward pass; a bias costs one addition per element of the result.

    Raises:
        UnknownError: the trace lacks the shape of input or weight, or the flag `transposed`.
    """
    name = call.names[0]
    given, weight, result = call.shape(name), call.shape("weight"), _result(call)
    added = prod(result) if call.has("bias") else 0
    moved = call.bytes_of(*(one for one in (name, "weight", "bias", "z") if one in call.names))
    return Needed(
        _products(given, weight, result, _transposed(call)), added, moved + prod(result) * call.item_bytes(name)
    )


def backward_cost(call: Call) -> Needed:
    """Return the cost of the backward pass; `output_mask` selects the gradients of input, weight and bias.

    Raises:
        UnknownError: the trace lacks a shape, `transposed` or `output_mask`.
    """
    grad, given, weight = (call.shape(name) for name in ("grad_output", "input", "weight"))
    of_input, of_weight, of_bias = call.value("output_mask")
    once = _products(given, weight, grad, call.value("transposed"))
    size = call.item_bytes("grad_output")
    # Each gradient reads one of input and weight, and is as large as the other.
    both = (prod(given) + prod(weight)) * size
    moved = prod(grad) * size + both * (of_input + of_weight)
    return Needed(once * (of_input + of_weight), prod(grad) if of_bias else 0, moved)


def _products(given: Shape, weight: Shape, result: Shape, transposed: bool) -> int:
    return 2 * prod(given if transposed else result) * prod(weight[1:])


def _transposed(call: Call) -> bool:
    # Operators without this flag are transposed if they have an `output_padding`.
    return call.value("transposed") if "transposed" in call.names else "output_padding" in call.names


def _result(call: Call) -> Shape:
    """Return the shape of the result: (batch, channels, *points)."""
    given, weight = call.shape(call.names[0]), call.shape("weight")
    dimensions = len(weight) - 2
    stride, padding, dilation, more = (
        _each(call.value(name, default) if name in call.names else default, dimensions)
        for name, default in (("stride", [1]), ("padding", [0]), ("dilation", [1]), ("output_padding", [0]))
    )
    points = []
    for axis in range(dimensions):
        reach = dilation[axis] * (weight[2 + axis] - 1)
        if _transposed(call):
            points.append((given[2 + axis] - 1) * stride[axis] - 2 * padding[axis] + reach + more[axis] + 1)
        else:
            points.append((given[2 + axis] + 2 * padding[axis] - reach - 1) // stride[axis] + 1)
    groups = call.value("groups", 1) if "groups" in call.names else 1
    return (given[0], weight[1] * groups if _transposed(call) else weight[0], *points)


def _each(values: list[int], dimensions: int) -> list[int]:
    """Return one number per dimension; a single number applies to all of them."""
    return list(values) * dimensions if len(values) == 1 else list(values)


# Costs of recurrent layers (LSTM, GRU, plain), by the equations in torch.nn.LSTM, GRU and RNN.
#
# At each position, every weight is multiplied once per sequence, which takes 2 operations per weight. The gradient of
# the weights takes as many operations, and so does the gradient of their factors. The input's gradient is left out if
# it is not requested.

RECURRENT_SIGNATURES = {
    "aten::_cudnn_rnn": "input weight weight_stride0 weight_buf hx cx mode hidden_size proj_size num_layers "
    "batch_first dropout train bidirectional batch_sizes dropout_state",
    "aten::mkldnn_rnn_layer": "input weight0 weight1 weight2 weight3 hx_ cx_ reverse batch_sizes mode hidden_size",
    "aten::_thnn_fused_lstm_cell": "input_gates hidden_gates cx input_bias hidden_bias",
    "aten::_thnn_fused_gru_cell": "input_gates hidden_gates hx input_bias hidden_bias",
    "aten::_cudnn_rnn_backward": "input weight weight_stride0 weight_buf hx cx output grad_output grad_hy grad_cy mode "
    "hidden_size proj_size num_layers batch_first dropout train bidirectional batch_sizes dropout_state reserve "
    "output_mask",
    "aten::mkldnn_rnn_layer_backward": "input weight1 weight2 weight3 weight4 hx_ cx_tmp output hy_ cy_ grad_output "
    "grad_hy grad_cy reverse mode hidden_size",
}
# By cuDNN's mode: number of gates, and operations per unit besides products. A gate adds two products and two biases
# (3) and applies sigmoid or tanh (1). LSTM: c = f c + i g, h = o tanh(c). GRU: the third gate multiplies one product by
# r; h = (1 - z) n + z h.
GATES, PER_UNIT = (1, 1, 4, 3), (4, 4, 4 * 4 + 3 + 2, 3 * 4 + 1 + 4)
LSTM, GRU = 2, 3


def cudnn_cost(call: Call) -> Needed:
    """Return the forward cost of all layers and directions."""
    places, weights, _, units = _sizes(call)
    # Each layer writes its results, and the next layer reads them.
    size = call.item_bytes("input")
    moved = call.bytes_of("input") + weights * size + 2 * places * units * size
    return Needed(2 * places * weights, places * units * PER_UNIT[call.value("mode")], moved)


def cudnn_backward_cost(call: Call) -> Needed:
    """Return the backward cost of all layers and directions.

    The first flag of `output_mask` requests the gradient of the input, the last one the gradients of the weights.
    """
    places, weights, of_input, units = _sizes(call)
    input_too, *_, weights_too = call.value("output_mask")
    products = 2 * places * (weights - (0 if input_too else of_input) + (weights if weights_too else 0))
    size = call.item_bytes("input")
    moved = call.bytes_of("input", "output", "grad_output") + weights * size * (1 + weights_too)
    # Per unit, the derivatives take about as many operations as the forward pass.
    return Needed(products, places * units * PER_UNIT[call.value("mode")], moved)


def _sizes(call: Call) -> tuple[int, int, int, int]:
    """Return positions of all sequences, weights, weights on the layer's input, and units of all layers."""
    given, mode, hidden = call.shape("input"), call.value("mode"), call.value("hidden_size")
    directions = 2 if call.value("bidirectional") else 1
    layers, narrow = call.value("num_layers"), call.value("proj_size", 0)
    result = narrow or hidden
    own = GATES[mode] * hidden * result + narrow * hidden
    of_input = directions * GATES[mode] * hidden * given[-1]
    weights = (
        of_input + directions * own * layers + (layers - 1) * directions * GATES[mode] * hidden * directions * result
    )
    # Sequences of unequal lengths are packed into one dimension.
    return prod(given[:-1]), weights, of_input, directions * layers * hidden


def recurrent_layer_cost(call: Call) -> Needed:
    """Return the forward cost of one layer and direction on the CPU."""
    products, others, moved = _layer(call, "weight0", "weight1")
    return Needed(products, others, moved)


def layer_backward_cost(call: Call) -> Needed:
    """Return the backward cost of one layer and direction on the CPU: gradients of weights and of their factors."""
    products, others, moved = _layer(call, "weight1", "weight2")
    return Needed(2 * products, others, 2 * moved)


def _layer(call: Call, of_input: str, of_state: str) -> tuple[int, int, int]:
    given, hidden = call.shape("input"), call.value("hidden_size")
    places = prod(given[:-1])
    weights = prod(call.shape(of_input)) + prod(call.shape(of_state))
    moved = call.bytes_of("input", of_input, of_state) + places * hidden * call.item_bytes("input")
    return 2 * places * weights, places * hidden * PER_UNIT[call.value("mode")], moved


def lstm_cell_cost(call: Call) -> Needed:
    """Return the cost of an LSTM cell after its matrix products; all gates are in one tensor."""
    return Needed(0, prod(call.shape("cx")) * PER_UNIT[LSTM], call.every_bytes() + 2 * call.bytes_of("cx"))


def gru_cell_cost(call: Call) -> Needed:
    """Return the cost of a GRU cell after its matrix products."""
    return Needed(0, prod(call.shape("hx")) * PER_UNIT[GRU], call.every_bytes() + call.bytes_of("hx"))


# All but products of matrices.
FORMULAS = {
    **dict.fromkeys(CONVOLUTION_SIGNATURES, forward_cost),
    "aten::convolution_backward": backward_cost,
    **dict.fromkeys(HEADS_FIRST, heads_first_cost),
    **dict.fromkeys(HEADS_BEHIND, heads_last_cost),
    "aten::_native_multi_head_attention": attention_cost,
    "aten::_transformer_encoder_layer_fwd": layer_cost,
    "aten::_cudnn_rnn": cudnn_cost,
    "aten::_cudnn_rnn_backward": cudnn_backward_cost,
    "aten::mkldnn_rnn_layer": recurrent_layer_cost,
    "aten::mkldnn_rnn_layer_backward": layer_backward_cost,
    "aten::_thnn_fused_lstm_cell": lstm_cell_cost,
    "aten::_thnn_fused_gru_cell": gru_cell_cost,
}
SIGNATURES = CONVOLUTION_SIGNATURES | HEADS_FIRST | HEADS_BEHIND | TRANSFORMER_SIGNATURES | RECURRENT_SIGNATURES
