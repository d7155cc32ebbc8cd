"""RetinaNet of torchvision, which selects boxes by masks and so waits for the GPU in every step."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torchvision.models.detection import retinanet_resnet50_fpn

SHAPE = {"size": 320, "classes": 91}
WORKLOADS = {"trimmed": {"inference": {"batch": 4}}}


class Detector(nn.Module):
    """The detector, which takes a list of images."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.detector = retinanet_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=shape.classes, min_size=shape.size, max_size=shape.size
        )

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        return self.detector(list(images))


def build(shape: SimpleNamespace) -> nn.Module:
    return Detector(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.rand(3, shape.size, shape.size, generator=generator), 0
