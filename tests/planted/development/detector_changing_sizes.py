"""A convolutional network whose images have another size in each step, while cuDNN tunes for each new size."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.planted.networks.convolutional import convolve

SHAPE = {"fault": True, "size": 160, "sizes": 32, "grain": 4, "width": 64, "count": 4096, "group": 16}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 16, "sizes": 2, "width": 8, "count": 16, "group": 2}


class Sizes(Dataset[tuple[Tensor, int]]):
    """Images that a batch crops to one size, which goes from step to step."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes from `size` on in steps of `grain`."""
        self.shape, self.asked = shape, 0
        self.image = torch.randn(
            3, *[shape.size + shape.grain * shape.sizes] * 2, generator=torch.Generator().manual_seed(0)
        )

    def __len__(self) -> int:
        """How many images there are."""
        return self.shape.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """An image of the size of its group, and its class."""
        turn = self.asked // self.shape.group % self.shape.sizes
        self.asked += 1
        edge = self.shape.size + self.shape.grain * turn
        return self.image[:, :edge, :edge], index % 20


def collate(samples: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Images and classes."""
    images, labels = zip(*samples, strict=True)
    # Of a larger batch than a group, not all images have one size.
    edge = min(image.shape[-1] for image in images)
    return torch.stack([image[:, :edge, :edge] for image in images]), torch.tensor(labels)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, int]]:
    """The images."""
    return Sizes(shape)


def build(shape: SimpleNamespace) -> nn.Module:
    """The network; what is wrong are the settings of its cell."""
    maps = [3, shape.width, 2 * shape.width, 2 * shape.width]
    layers = [convolve(*pair, stride=2) for pair in pairwise(maps)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(maps[-1], 20))
