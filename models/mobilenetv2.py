"""MobileNet-V2: inverted residual blocks of depthwise separable convolutions."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torchvision.models import mobilenet_v2

GROUPS = ("classification",)
SOURCE = "Sandler et al. 2018, arXiv:1801.04381, table 2; parameters as torchvision counts them for 1000 classes"
PARAMETERS = 3_504_872
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 224},
        "inference": {"batch": 8, "size": 224},
    },
    "reference": {
        "train": {"batch": 50, "size": 224, "classes": 1001},
        "inference": {"batch": 50, "size": 224, "classes": 1001},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """The network with random weights."""
    return mobilenet_v2(weights=None, num_classes=shape.classes)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """An image (3, size, size) and its class."""
    image = torch.rand(3, shape.size, shape.size, generator=generator)
    return image, int(torch.randint(shape.classes, (), generator=generator))


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the class scores."""
    return nn.functional.cross_entropy(outputs, target)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam, as the original profiled it."""
    return torch.optim.Adam(parameters, lr=1e-3)
