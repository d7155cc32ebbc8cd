"""SRCNN 9-5-5: three convolutions that sharpen an image enlarged beforehand.

Weights, from section 4.3.2 (filters 9, 5 and 5 wide, 64 and 32 maps, luminance alone), biases left out:
9*9*64 + 5*5*64*32 + 5*5*32 = 57_184, the figure of the paper's table of filter sizes.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images, restoration
from profzoo.harness.tasks.restoration import loss

GROUPS = ("super-resolution", "classic")
SOURCE = "Dong et al. 2015, arXiv:1501.00092, section 4.3.2; parameters as given there"
PARAMETERS = 57_184
DIFFERENCE = "the paper leaves 97 biases out"
REFERENCE = {"parameters": 69_249, "operations": 362_555_637_760, "difference": "its last three maps share a bias"}
SHAPE = {"channels": 1, "scale": 2, "bounded": False}
ORIGINAL = {"channels": 3, "bounded": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 256}, "inference": {"batch": 8, "size": 256}},
    "reference": {"train": {"batch": 10, "size": 512, **ORIGINAL}, "inference": {"batch": 10, "size": 512, **ORIGINAL}},
    "large": {"inference": {"batch": 1, "size": 1536, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 512, **ORIGINAL}},
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights: (batch, channels, size, size) to the same."""
    return nn.Sequential(
        nn.Conv2d(shape.channels, 64, 9, padding=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 32, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, shape.channels, 5, padding=2),
        *([images.Bounded()] if shape.bounded else []),
    )


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image made small and enlarged again, and the image, both (channels, size, size)."""
    return _enlarged(*restoration.sample(shape, generator))


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image."""
    return _enlarged(*restoration.adapt(raw, shape))


def _enlarged(small: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
    return nn.functional.interpolate(small[None], size=large.shape[-2:], mode="bicubic", align_corners=False)[0], large
