"""One class an image; shape: `size` (or height and width), `classes`, and `channels` where not 3."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from models.harness.tasks import images
from workflow.scripts.lib.schema import ConfigError


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """An image (channels, height, width) and its class."""
    return images.random(shape, generator), int(torch.randint(shape.classes, (), generator=generator))


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, int]:
    """The same of a PIL image and its label; ConfigError for a label that the model has no class for."""
    image, label = raw
    if not isinstance(label, int) or not 0 <= label < shape.classes:
        raise ConfigError(f"label {label!r} is not one of the model's {shape.classes} classes")
    return images.pixels(image, images.channels(shape), *images.extent(shape)), label
