"""Images as tensors: random ones, and those on disk."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def extent(shape: SimpleNamespace) -> tuple[int, int]:
    """Height and width in pixels: `height` and `width`, else the square `size`."""
    return (shape.height, shape.width) if hasattr(shape, "height") else (shape.size, shape.size)


def channels(shape: SimpleNamespace) -> int:
    """Channels of the image: 3 unless the shape says otherwise."""
    return getattr(shape, "channels", 3)


def random(shape: SimpleNamespace, generator: torch.Generator) -> Tensor:
    """An image (channels, height, width) of uniform noise in [0, 1)."""
    return torch.rand(channels(shape), *extent(shape), generator=generator)


def pixels(image: Any, colours: int, height: int, width: int) -> Tensor:
    """A PIL image as (colours, height, width) in [0, 1], resized; colours: 1 or 3."""
    from torchvision.transforms import v2

    mode = v2.InterpolationMode.BILINEAR
    tensor = v2.functional.to_image(image.convert("L" if colours == 1 else "RGB"))
    tensor = v2.functional.resize(tensor, [height, width], interpolation=mode, antialias=True)
    return v2.functional.to_dtype(tensor, torch.float32, scale=True)
