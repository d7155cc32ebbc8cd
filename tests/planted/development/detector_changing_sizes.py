"""A convolutional network whose images have another size in each step, for which cuDNN tunes its frozen first layer."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.planted.networks.convolutional import Residual

SHAPE = {
    "fault": True,
    "size": 64,
    "sizes": 32,
    "grain": 4,
    "width": 64,
    "grid": 16,
    "layers": 4,
    "count": 4096,
    "group": 16,
}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 16, "sizes": 2, "width": 8, "grid": 4, "layers": 1, "count": 16, "group": 2}


class Sizes(Dataset[tuple[Tensor, int]]):
    """Images that a batch crops to one size, which goes from step to step."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes from `size` on in steps of `grain`."""
        self.shape, self.asked = shape, 0
        self.image = torch.randn(
            3, *[shape.size + shape.grain * shape.sizes] * 2, generator=torch.Generator().manual_seed(0)
        )

    def __len__(self) -> int:
        return self.shape.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        turn = self.asked // self.shape.group % self.shape.sizes
        self.asked += 1
        edge = self.shape.size + self.shape.grain * turn
        return self.image[:, :edge, :edge], index % 20


def collate(samples: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    images, labels = zip(*samples, strict=True)
    # Of a larger batch than a group, not all images have one size.
    edge = min(image.shape[-1] for image in images)
    return torch.stack([image[:, :edge, :edge] for image in images]), torch.tensor(labels)


class Mean(nn.Module):
    """Mean over the places."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=2)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, int]]:
    return Sizes(shape)


def build(shape: SimpleNamespace) -> nn.Module:
    # As in most detectors the first layer is frozen; what comes after it sees maps of one size.
    first = nn.Conv2d(3, shape.width, 7, 2, padding=3).requires_grad_(False)
    layers = [Residual(shape.width) for _ in range(shape.layers)]
    return nn.Sequential(
        first, nn.ReLU(), nn.AdaptiveAvgPool2d(shape.grid), *layers, nn.Flatten(2), Mean(), nn.Linear(shape.width, 20)
    )
