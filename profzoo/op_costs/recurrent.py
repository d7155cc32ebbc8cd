"""Costs of recurrent layers (LSTM, GRU, plain), by the equations in torch.nn.LSTM, GRU and RNN.

At each position, every weight is multiplied once per sequence, which takes 2 operations per weight. The gradient of the
weights takes as many operations, and so does the gradient of their factors. The input's gradient is left out if it is
not requested.
"""

from math import prod

from profzoo.op_costs.operator_calls import Call, Needed

SIGNATURES = {
    "aten::_cudnn_rnn": "input weight weight_stride0 weight_buf hx cx mode hidden_size proj_size num_layers "
    "batch_first dropout train bidirectional batch_sizes dropout_state",
    "aten::mkldnn_rnn_layer": "input weight0 weight1 weight2 weight3 hx_ cx_ reverse batch_sizes mode hidden_size",
    "aten::_thnn_fused_lstm_cell": "input_gates hidden_gates cx input_bias hidden_bias",
    "aten::_thnn_fused_gru_cell": "input_gates hidden_gates hx input_bias hidden_bias",
}
BACKWARD = {
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


def layer_cost(call: Call) -> Needed:
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


FORMULAS = {
    "aten::_cudnn_rnn": cudnn_cost,
    "aten::_cudnn_rnn_backward": cudnn_backward_cost,
    "aten::mkldnn_rnn_layer": layer_cost,
    "aten::mkldnn_rnn_layer_backward": layer_backward_cost,
    "aten::_thnn_fused_lstm_cell": lstm_cell_cost,
    "aten::_thnn_fused_gru_cell": gru_cell_cost,
}
SIGNATURES |= BACKWARD
