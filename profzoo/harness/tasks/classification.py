"""One class an image; shape: `size` (or height and width), `classes`, and `channels` where not 3.

Pixels are scaled by the mean and deviation of ImageNet's, as torchvision does for its networks and He et al. did for
theirs (fb.resnet.torch); `symmetric_sample` and `symmetric_adapt` scale them to [-1, 1], as the Inception networks were
trained (inception_preprocessing of TensorFlow-Slim, and timm's configuration of each).
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness.tasks import images


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """An image (channels, height, width) and its class."""
    image, label = _drawn(shape, generator)
    return images.normalised(image, images.IMAGENET), label


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, int]:
    """The same of a PIL image and its label; ConfigError for a label that the model has no class for."""
    image, label = _read(raw, shape)
    return images.normalised(image, images.IMAGENET), label


def symmetric_sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """An image (channels, height, width) in [-1, 1] and its class."""
    image, label = _drawn(shape, generator)
    return images.normalised(image, images.SYMMETRIC), label


def symmetric_adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, int]:
    """The same of a PIL image and its label; ConfigError for a label that the model has no class for."""
    image, label = _read(raw, shape)
    return images.normalised(image, images.SYMMETRIC), label


def scale_convolutions(network: nn.Module) -> nn.Module:
    """Scale the weights of convolutions so that layers keep the size of values (He et al. 2015, arXiv:1502.01852).

    Batch norm keeps it only once it has seen data. Inference from initial weights would otherwise return the biases of
    the last layer, whatever its input.
    """
    with torch.no_grad():
        for weight in (one.weight for one in network.modules() if isinstance(one, nn.Conv2d)):
            weight *= (2 / weight[0].numel()) ** 0.5 / weight.std()
    return network


def shrink_blocks(network: nn.Module) -> nn.Module:
    """Scale the last weights of bottleneck blocks, so that each block adds less the more of them there are.

    Until batch norm has seen data, sums over all blocks of a deep network would exceed the range of fp16.
    """
    last: list[Any] = [module.conv3 for module in network.modules() if hasattr(module, "conv3")]
    with torch.no_grad():
        for convolution in last:
            convolution.weight *= len(last) ** -0.5
    return network


def _drawn(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return images.random(shape, generator), int(torch.randint(shape.classes, (), generator=generator))


def _read(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, int]:
    image, label = raw
    if label is None or isinstance(raw, images.Pair):
        raise ConfigError("a model that tells classes apart needs them: put the images into a folder for each class")
    if not isinstance(label, int) or not 0 <= label < shape.classes:
        raise ConfigError(f"label {label!r} is not one of the model's {shape.classes} classes")
    return images.pixels(image, images.channels(shape), *images.extent(shape)), label
