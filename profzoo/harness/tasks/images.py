"""Images as tensors, random ones and those on disk, in the ranges that networks take them in, and initial weights."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

# Means and deviations of red, green and blue.
Scale = tuple[tuple[float, ...], tuple[float, ...]]
# Those of ImageNet, by which torchvision scales what its networks are trained on.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# From [0, 1] to [-1, 1].
SYMMETRIC = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# Pixels from one free choice of colour to the next in a random image.
GRAIN = 8


def extent(shape: SimpleNamespace) -> tuple[int, int]:
    """Height and width in pixels: `height` and `width`, else the square `size`."""
    return (shape.height, shape.width) if hasattr(shape, "height") else (shape.size, shape.size)


def channels(shape: SimpleNamespace) -> int:
    """Channels of the image: 3 unless the shape says otherwise."""
    return getattr(shape, "channels", 3)


def random(shape: SimpleNamespace, generator: torch.Generator) -> Tensor:
    """An image (channels, height, width) of random colours in [0, 1) that flow into each other.

    Neighbouring pixels are alike, as in a photograph: noise could not be restored from a smaller image, and a loss that
    smooths would leave nothing of it.
    """
    height, width = extent(shape)
    coarse = torch.rand(1, channels(shape), height // GRAIN + 2, width // GRAIN + 2, generator=generator)
    return interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)[0]


def pixels(image: Any, colours: int, height: int, width: int) -> Tensor:
    """A PIL image as (colours, height, width) in [0, 1], resized; colours: 1 or 3."""
    from torchvision.transforms import v2

    mode = v2.InterpolationMode.BILINEAR
    tensor = v2.functional.to_image(image.convert("L" if colours == 1 else "RGB"))
    tensor = v2.functional.resize(tensor, [height, width], interpolation=mode, antialias=True)
    return v2.functional.to_dtype(tensor, torch.float32, scale=True)


def normalised(image: Tensor, scale: Scale) -> Tensor:
    """An image (colours, height, width) of [0, 1], less the scale's mean, in its deviations; grey by those of all."""
    mean, deviation = (torch.tensor(part, dtype=image.dtype, device=image.device)[:, None, None] for part in scale)
    if image.shape[-3] != len(mean):
        mean, deviation = mean.mean(0, keepdim=True), deviation.mean(0, keepdim=True)
    return (image - mean) / deviation


class Bounded(nn.Module):
    """The end of a network that makes images: they exceed [0, 1] by a little at most."""

    def forward(self, image: Tensor) -> Tensor:
        """Of the same shape."""
        return 0.58 * torch.tanh(image) + 0.5


# Initial weights with which a signal keeps its size through layers of ReLU.

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
