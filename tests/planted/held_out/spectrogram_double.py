"""A classifier of sounds whose window and filters come from numpy, and make its spectrograms fp64."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from tests.planted.networks.convolutional import ResidualNetwork

SHAPE = {"fault": True, "length": 65536, "frame": 1024, "hop": 160, "filters": 80, "width": 32, "depths": [1, 1, 1]}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}
TINY = {"batch": 2, "length": 1024, "frame": 64, "hop": 16, "filters": 8, "width": 8, "depths": [1, 1]}
CLASSES = 50


class Sounds(nn.Module):
    """Logarithms of a spectrogram's filtered power, through a residual network."""

    window: Tensor
    filters: Tensor

    def __init__(self, shape: SimpleNamespace) -> None:
        """fault: whether window and filters stay as numpy made them."""
        super().__init__()
        kind = np.float64 if shape.fault else np.float32
        bins = shape.frame // 2 + 1
        centres = np.geomspace(1.0, bins - 1.0, shape.filters)[:, None]
        filters = np.clip(1.0 - np.abs(np.arange(bins) - centres) / (1.0 + centres / 4), 0.0, None)
        self.register_buffer("window", torch.from_numpy(np.hanning(shape.frame).astype(kind)))
        self.register_buffer("filters", torch.from_numpy(filters.astype(kind)))
        self.hop = shape.hop
        self.network = ResidualNetwork(shape.width, shape.depths, CLASSES)

    def forward(self, sound: Tensor) -> Tensor:
        frames = sound.unfold(1, len(self.window), self.hop) * self.window
        power = torch.fft.rfft(frames).abs().square()
        power = power / (power.mean(dim=(1, 2), keepdim=True) + 1e-6)
        image = torch.log(power @ self.filters.T + 1e-3)
        image = (image - image.mean()) / image.std()
        return self.network(image.float()[:, None].expand(-1, 3, -1, -1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Sounds(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.randn(shape.length, generator=generator), int(torch.randint(CLASSES, (), generator=generator))
