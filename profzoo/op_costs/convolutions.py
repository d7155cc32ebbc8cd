"""Costs of convolutions, forward and backward, grouped and transposed.

Each element of the result is a sum over the channels of its group and over the kernel. This takes 2 N C_out O C_in/g K
operations, for batch size N, g groups, O points of the result and K points of the kernel. For a transposed convolution,
O is the number of points of the input. The gradients of input and weight take as many operations each. (torch's
FlopCounterMode counts g times as many for the weight's gradient, because its formula ignores groups.)
"""

from math import prod

from profzoo.op_costs.operator_calls import Call, Needed, Shape

SIGNATURES = {
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
}
BACKWARD = {
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


FORMULAS = {**dict.fromkeys(SIGNATURES, forward_cost), **dict.fromkeys(BACKWARD, backward_cost)}
SIGNATURES |= BACKWARD
