"""A conformer for sounds, whose attention with weights by distance is written out."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.planted.networks.transformer import Attention, two_layers

SHAPE = {"fault": True, "frames": 1024, "bands": 80, "width": 512, "heads": 8, "layers": 5}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}
TINY = {"batch": 2, "frames": 8, "bands": 4, "width": 16, "heads": 2, "layers": 1}


class Near(Attention):
    """Attention of which each head prefers what is near, to its own degree."""

    far: Tensor

    def __init__(self, width: int, heads: int, frames: int, fault: bool) -> None:
        super().__init__(width, heads)
        places = torch.arange(frames)
        slopes = 2.0 ** -torch.arange(1, heads + 1)
        self.register_buffer("far", -slopes[:, None, None] * (places[:, None] - places).abs())
        self.fault = fault

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if not self.fault:
            return scaled_dot_product_attention(query, key, value, self.far.to(query.dtype))
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5 + self.far
        return scores.softmax(-1) @ value


class Conformer(nn.Module):
    """Half a feed-forward, attention, a gated convolution over time, and half a feed-forward."""

    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.attention, self.first, self.last = attention, two_layers(width, nn.SiLU), two_layers(width, nn.SiLU)
        self.convolve = nn.Sequential(nn.Conv1d(width, 2 * width, 3, padding=1), nn.GLU(1), nn.BatchNorm1d(width))

    def forward(self, flow: Tensor) -> Tensor:
        flow = flow + 0.5 * self.first(self.norms[0](flow))
        flow = flow + self.attention(self.norms[1](flow))
        flow = flow + self.convolve(self.norms[2](flow).transpose(1, 2)).transpose(1, 2)
        return flow + 0.5 * self.last(self.norms[3](flow))


class Mean(nn.Module):
    def forward(self, flow: Tensor) -> Tensor:
        return flow.mean(1)


def build(shape: SimpleNamespace) -> nn.Module:
    blocks = [
        Conformer(shape.width, Near(shape.width, shape.heads, shape.frames, shape.fault)) for _ in range(shape.layers)
    ]
    return nn.Sequential(nn.Linear(shape.bands, shape.width), *blocks, Mean(), nn.Linear(shape.width, 35))


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    label = int(torch.randint(35, (), generator=generator))
    return torch.randn(shape.frames, shape.bands, generator=generator), label
