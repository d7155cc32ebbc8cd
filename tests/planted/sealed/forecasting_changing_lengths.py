"""Forecasts from histories of another length in each step, for whose first convolution cuDNN tunes again."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss as loss
from torch.utils.data import Dataset

from tests.planted.networks.samples import whole as collate

SHAPE = {
    "fault": True, "rows": 24, "channels": 16, "shortest": 2048, "grain": 24, "lengths": 64, "width": 256,
    "places": 256, "layers": 8, "ahead": 96,
}  # fmt: skip
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"rows": 2, "channels": 2, "shortest": 32, "lengths": 1, "width": 8, "places": 8, "layers": 2, "ahead": 4}


class Histories(Dataset[tuple[Tensor, Tensor]]):
    """Batches of histories, each batch of its own length; mended, all have the middle one."""

    def __init__(self, shape: SimpleNamespace) -> None:
        self.shape, chance = shape, torch.Generator().manual_seed(0)
        longest = shape.shortest + shape.grain * shape.lengths
        self.series = torch.randn(shape.rows, shape.channels, longest, generator=chance)
        self.later = torch.randn(shape.rows, shape.ahead, generator=chance)

    def __len__(self) -> int:
        return max(self.shape.lengths, 2)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        turn = index % self.shape.lengths if self.shape.fault else self.shape.lengths // 2
        return self.series[..., : self.shape.shortest + self.shape.grain * turn], self.later


class Causal(nn.Module):
    """Two dilated convolutions that see only what was before, added to what went in."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.first, self.second = (nn.Conv1d(width, width, 3, dilation=dilation) for _ in range(2))

    def forward(self, flow: Tensor) -> Tensor:
        return flow + self.second(self.pad(self.first(self.pad(flow)).relu())).relu()


def build(shape: SimpleNamespace) -> nn.Module:
    enter = nn.Conv1d(shape.channels, shape.width, 16, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(shape.places)
    layers = [Causal(shape.width, 2 ** (layer % 4)) for layer in range(shape.layers)]
    leave = nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(shape.width, shape.ahead)
    return nn.Sequential(*enter, *layers, *leave)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, Tensor]]:
    return Histories(shape)
