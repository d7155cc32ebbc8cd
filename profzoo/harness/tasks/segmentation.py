"""One class a pixel; shape: `size` (or height and width), `classes`, and `channels` where not 3.

Pixels are scaled by the mean and deviation of ImageNet's, as torchvision does for networks on a backbone that was
trained on it, and as suits weights drawn after He et al., which expect inputs of mean 0 and deviation 1.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness.tasks import images

VOID = 255  # What masks of VOC and Cityscapes have where there is no class, or none that counts.
IGNORED = -100  # What torch's cross-entropy leaves out.


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image (channels, height, width) and its mask of classes (height, width)."""
    image, mask = drawn(shape, generator)
    return images.normalised(image, images.IMAGENET), mask


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """The same of a PIL image and its mask, where pixels without a class are IGNORED.

    Raises:
        ConfigError: there is a label instead of a mask, or a class that the model does not have.
    """
    image, mask = read(raw, shape)
    return images.normalised(image, images.IMAGENET), mask


def drawn(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image in [0, 1) and its mask: classes go by the first channel, so that either can be learnt of the other."""
    image = images.random(shape, generator)
    return image, (image[0] * shape.classes).long().clamp(max=shape.classes - 1)


def read(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """The same of a PIL image and its mask; raises as `adapt`."""
    from torchvision.transforms import v2

    image, mask = raw
    if not hasattr(mask, "convert"):
        raise ConfigError("a segmentation model needs masks: take a dataset such as VOCSegmentation")
    extent, nearest = images.extent(shape), v2.InterpolationMode.NEAREST
    target = v2.functional.pil_to_tensor(mask).long()
    if len(target) != 1:
        raise ConfigError(f"a mask has {len(target)} channels: give masks of one, whose numbers are classes")
    target = v2.functional.resize(target, list(extent), interpolation=nearest).squeeze(0)
    target = target.masked_fill(target == VOID, IGNORED)
    if (highest := int(target.max())) >= shape.classes:
        raise ConfigError(
            f"class {highest} of a mask is not one of the model's {shape.classes}: set classes to what the data set has"
        )
    return images.pixels(image, images.channels(shape), *extent), target


def thinned(target: Tensor, scores: Tensor) -> Tensor:
    """The mask (batch, height, width) at the extent of scores that a network gives at a part of the resolution."""
    return target[:, :: target.shape[1] // scores.shape[2], :: target.shape[2] // scores.shape[3]]


def with_auxiliary(outputs: Tensor, auxiliary: Tensor, target: Tensor, weight: float) -> Tensor:
    """Cross-entropy of the pixels, and that of an auxiliary head times its weight."""
    cross_entropy = nn.functional.cross_entropy
    return cross_entropy(outputs, target) + weight * cross_entropy(auxiliary, target)
