"""An image from a worse one; shape: `size` of the better one, `scale` by which the other is smaller, `channels`."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(channels, size / scale, size / scale) and (channels, size, size), in [0, 1)."""
    return _pair(images.random(shape, generator), shape)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """The same of a PIL image, whose label is passed over, or of a pair of a worse and a better one."""
    if isinstance(raw, images.Pair):
        colours, size = images.channels(shape), shape.size
        worse = images.pixels(raw.input, colours, size // shape.scale, size // shape.scale)
        return worse, images.pixels(raw.target, colours, size, size)
    return _pair(images.pixels(raw[0], images.channels(shape), shape.size, shape.size), shape)


def _pair(better: Tensor, shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    return nn.functional.avg_pool2d(better, shape.scale) if shape.scale > 1 else better, better


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of the pixels."""
    return nn.functional.mse_loss(outputs, target)
