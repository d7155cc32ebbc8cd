"""VGG-19: sixteen 3x3 convolutions and three wide linear layers; or AI Benchmark's network of this name.

That one makes an image sharper: twenty 3x3 convolutions at the full resolution, whose sum with the image is its output
(Kim et al. 2016, arXiv:1511.04587). Parameters: 9*3*64 + 64 + 18*(9*64*64 + 64) + 9*64*3 + 3 = 668_227.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import vgg19

from models import srcnn
from models.vgg16 import optimizer
from profzoo.harness.tasks import classification, images, restoration

GROUPS = ("classification", "classic")
SOURCE = "Simonyan and Zisserman 2014, arXiv:1409.1556, table 1 column E; parameters as torchvision counts them"
PARAMETERS = 143_667_240
REFERENCE = {"parameters": 668_227, "operations": 874_260_725_760}
SHAPE = {"classes": 1000, "sharpens": False, "scale": 2}
ORIGINAL = {"sharpens": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 10, "size": 224, **ORIGINAL}, "inference": {"batch": 10, "size": 256, **ORIGINAL}},
    "large": {"inference": {"batch": 1, "size": 1024, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 512, **ORIGINAL}},
}


class Sharpening(nn.Sequential):
    """From (batch, 3, size, size) to the same."""

    def __init__(self) -> None:
        """Twenty convolutions, a ReLU between each two."""
        layers: list[nn.Module] = []
        for inputs in (3, *[64] * 18):
            layers += [nn.Conv2d(inputs, 64, 3, padding=1), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.Conv2d(64, 3, 3, padding=1))
        images.he(self)  # Section 4.1.

    def forward(self, image: Tensor) -> Tensor:
        """The sharper image."""
        return image + super().forward(image)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return Sharpening() if shape.sharpens else vgg19(weights=None, num_classes=shape.classes)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Any]:
    """An image and its class, or a blurred image and the image."""
    return (srcnn if shape.sharpens else classification).sample(shape, generator)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Any]:
    """Make such a sample from a PIL image and its label."""
    return (srcnn if shape.sharpens else classification).adapt(raw, shape)


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the classes, or mean squared error of the pixels."""
    return (restoration.loss if target.is_floating_point() else nn.functional.cross_entropy)(outputs, target)
