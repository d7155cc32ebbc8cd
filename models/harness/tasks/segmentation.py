"""One class a pixel; shape: `size` (or height and width), `classes`, and `channels` where not 3."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from models.harness.tasks import images
from workflow.scripts.lib.schema import ConfigError


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image (channels, height, width) and its mask of classes (height, width)."""
    return images.random(shape, generator), torch.randint(shape.classes, images.extent(shape), generator=generator)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """The same of a PIL image and its mask; ConfigError where there is a label instead."""
    from torchvision.transforms import v2

    image, mask = raw
    if not hasattr(mask, "convert"):
        raise ConfigError("a segmentation model needs masks: take a dataset such as VOCSegmentation")
    extent, nearest = images.extent(shape), v2.InterpolationMode.NEAREST
    target = v2.functional.pil_to_tensor(mask).long()
    target = v2.functional.resize(target, list(extent), interpolation=nearest).squeeze(0)
    # Also what marks pixels without a class (255 in VOC): a profile needs valid classes, not the right ones.
    return images.pixels(image, images.channels(shape), *extent), target.clamp(max=shape.classes - 1)


def with_auxiliary(outputs: Tensor, auxiliary: Tensor, target: Tensor, weight: float) -> Tensor:
    """Cross-entropy of the pixels, and that of an auxiliary head times its weight."""
    cross_entropy = nn.functional.cross_entropy
    return cross_entropy(outputs, target) + weight * cross_entropy(auxiliary, target)
