"""Initial weights with which a signal keeps its size through layers of ReLU."""

from torch import nn

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def he(network: nn.Module) -> None:
    """Draw the convolutions' weights with a deviation of sqrt(2 / N), N being the inputs of a unit; biases are 0.

    He et al. 2015, arXiv:1502.01852, section 2.2.
    """
    for layer in network.modules():
        if isinstance(layer, CONVOLUTIONS):
            height, width = layer.kernel_size
            # A transposed convolution reaches each output once for every stride that its width spans.
            share = layer.stride[0] * layer.stride[1] if isinstance(layer, nn.ConvTranspose2d) else 1
            inputs = layer.in_channels // layer.groups * height * width / share
            nn.init.normal_(layer.weight, std=(2 / inputs) ** 0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
