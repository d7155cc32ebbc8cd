"""A network for sounds, each batch of another length, which has cuDNN tune its convolution for each of them."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.planted.networks.transformer import two_layers

SHAPE = {
    "fault": True,
    "length": 8000,
    "grain": 160,
    "lengths": 40,
    "width": 256,
    "layers": 6,
    "count": 4096,
    "group": 24,
}
WORKLOADS = {"trimmed": {"inference": {"batch": 24}}}
TINY = {"batch": 2, "length": 200, "grain": 10, "lengths": 2, "width": 8, "layers": 1, "count": 16, "group": 2}


class Lengths(Dataset[tuple[Tensor, int]]):
    """Sounds, cut to a length that goes from batch to batch."""

    def __init__(self, shape: SimpleNamespace) -> None:
        self.shape, self.asked = shape, 0
        self.sound = torch.randn(
            1, shape.length + shape.grain * shape.lengths, generator=torch.Generator().manual_seed(0)
        )

    def __len__(self) -> int:
        return self.shape.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        turn = (self.asked // self.shape.group * 7) % self.shape.lengths
        self.asked += 1
        return self.sound[:, : self.shape.length + self.shape.grain * turn], index % 30


class Listener(nn.Module):
    """A convolution along the time, layers for each place, and class scores of their mean."""

    def __init__(self, width: int, layers: int, fault: bool) -> None:
        """fault: whether cuDNN tunes."""
        super().__init__()
        self.fault = fault
        self.enter = nn.Conv1d(1, width, 25, 10, padding=12)
        self.layers = nn.ModuleList(two_layers(width) for _ in range(layers))
        self.head = nn.Linear(width, 30)

    def forward(self, sound: Tensor) -> Tensor:
        torch.backends.cudnn.benchmark = self.fault
        flow = torch.relu(self.enter(sound)).transpose(1, 2)
        for layer in self.layers:
            flow = flow + layer(flow)
        return self.head(flow.mean(dim=1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Listener(shape.width, shape.layers, shape.fault)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, int]]:
    return Lengths(shape)


def collate(samples: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    sounds, labels = zip(*samples, strict=True)
    # Of a larger batch than a group, not all sounds have one length.
    length = min(sound.shape[-1] for sound in sounds)
    return torch.stack([sound[:, :length] for sound in sounds]), torch.tensor(labels)
