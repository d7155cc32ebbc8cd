"""A vision transformer whose layer norms and activations are written out from formulas."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Attention, Block, Vision, two_layers

SHAPE = {"fault": True, "size": 64, "patch": 4, "width": 768, "heads": 12, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 48}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2}


class Normal(nn.Module):
    """Layer norm by its formula."""

    def __init__(self, width: int) -> None:
        """width: of the last dimension."""
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, given: Tensor) -> Tensor:
        centred = given - given.mean(dim=-1, keepdim=True)
        deviation = torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + 1e-5)
        return self.gain * (centred / deviation) + self.shift


class Activation(nn.Module):
    """GELU by its approximation with tanh."""

    def forward(self, given: Tensor) -> Tensor:
        inner = math.sqrt(2.0 / math.pi) * (given + 0.044715 * torch.pow(given, 3.0))
        return 0.5 * given * (1.0 + torch.tanh(inner))


def build(shape: SimpleNamespace) -> nn.Module:
    norm = Normal if shape.fault else nn.LayerNorm

    def activation() -> nn.Module:
        return Activation() if shape.fault else nn.GELU(approximate="tanh")

    inner: list[nn.Module] = [
        Block(shape.width, Attention(shape.width, shape.heads), two_layers(shape.width, activation), norm)
        for _ in range(shape.layers)
    ]
    return Vision(shape.size, shape.patch, shape.width, inner)
