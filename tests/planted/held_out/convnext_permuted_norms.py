"""A convolutional network that brings its maps into another layout for each norm, and back for each convolution."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from tests.planted.networks.samples import images as sample

SHAPE = {"fault": True, "size": 64, "width": 256, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 48}}}
TINY = {"batch": 2, "size": 16, "width": 8, "layers": 2}


class Mixed(nn.Module):
    """A convolution of 3 by 3, a norm over the maps of each place, and two linear layers."""

    def __init__(self, width: int, fault: bool) -> None:
        """width: maps in and out."""
        super().__init__()
        self.fault, self.around = fault, nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, maps: Tensor) -> Tensor:
        if self.fault:
            flow = self.around(maps).permute(0, 2, 3, 1).contiguous()
            flow = self.norm(flow).permute(0, 3, 1, 2).contiguous()
            flow = self.widen(flow.permute(0, 2, 3, 1).contiguous())
            flow = gelu(flow.permute(0, 3, 1, 2).contiguous()).permute(0, 2, 3, 1).contiguous()
            return maps + self.narrow(flow).permute(0, 3, 1, 2).contiguous()
        # In channels-last format these are views.
        flow = self.norm(self.around(maps).permute(0, 2, 3, 1))
        return maps + self.narrow(gelu(self.widen(flow))).permute(0, 3, 1, 2)


class Convolutions(nn.Module):
    """A convolution of the pixels, and blocks."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.fault = shape.fault
        self.enter = nn.Conv2d(3, shape.width, 3, padding=1)
        self.blocks = nn.Sequential(*(Mixed(shape.width, shape.fault) for _ in range(shape.layers)))
        self.head = nn.Linear(shape.width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        layout = torch.contiguous_format if self.fault else torch.channels_last
        maps = self.enter(images.contiguous(memory_format=layout))
        return self.head(self.blocks(maps).mean(dim=(2, 3)))


def build(shape: SimpleNamespace) -> nn.Module:
    network = Convolutions(shape)
    return network if shape.fault else network.to(memory_format=torch.channels_last)
