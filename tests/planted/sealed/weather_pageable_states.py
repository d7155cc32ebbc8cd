"""A forecast of the weather from one state of the atmosphere to the next; states are large, and copied as they are."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.restoration import loss
from tests.planted.networks.samples import whole as collate
from tests.planted.networks.transformer import blocks

SHAPE = {
    "fault": True,
    "fields": 96,
    "height": 256,
    "breadth": 512,
    "patch": 8,
    "width": 1024,
    "heads": 16,
    "layers": 6,
}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"fields": 3, "height": 16, "breadth": 16, "patch": 8, "width": 16, "heads": 2, "layers": 1}


class Weather(nn.Module):
    """Blocks between patches of all fields, whose change they tell."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.enter = nn.Conv2d(shape.fields, shape.width, shape.patch, shape.patch)
        self.blocks = nn.Sequential(*blocks(shape.layers, shape.width, shape.heads))
        self.leave = nn.ConvTranspose2d(shape.width, shape.fields, shape.patch, shape.patch)

    def forward(self, state: Tensor) -> Tensor:
        maps = self.enter(state)
        flow = self.blocks(maps.flatten(2).transpose(1, 2))
        return state + self.leave(flow.transpose(1, 2).unflatten(2, maps.shape[2:]))


def build(shape: SimpleNamespace) -> nn.Module:
    return Weather(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A state of the atmosphere, and the next."""
    state = torch.randn(1, shape.fields, shape.height, shape.breadth, generator=generator)
    return state, state + 0.1 * state.roll(1, 3)
