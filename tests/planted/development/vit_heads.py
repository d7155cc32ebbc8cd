"""A vision transformer whose attention heads are modules of their own."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Block, Vision, two_layers

SHAPE = {"fault": True, "size": 64, "patch": 8, "width": 384, "heads": 12, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2}


class Head(nn.Module):
    """Attention of one head."""

    def __init__(self, width: int, own: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, own) for _ in range(3))

    def forward(self, flow: Tensor) -> Tensor:
        return scaled_dot_product_attention(self.query(flow), self.key(flow), self.value(flow))


class Heads(nn.Module):
    """Several heads and what merges them."""

    def __init__(self, fault: bool, width: int, heads: int) -> None:
        """fault: whether one head comes after the other."""
        super().__init__()
        self.fault, self.heads = fault, nn.ModuleList(Head(width, width // heads) for _ in range(heads))
        self.merge = nn.Linear(width, width)

    def forward(self, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.fault:
            return self.merge(torch.cat([head(flow) for head in self.heads], dim=-1))
        mixed = scaled_dot_product_attention(*(self.projected(flow, name) for name in ("query", "key", "value")))
        return self.merge(mixed.transpose(1, 2).flatten(2))

    def projected(self, flow: Tensor, name: str) -> Tensor:
        """Queries, keys or values of all heads by one product, (batch, heads, length, own)."""
        layers = [getattr(head, name) for head in self.heads]
        weight, bias = torch.cat([one.weight for one in layers]), torch.cat([one.bias for one in layers])
        return linear(flow, weight, bias).unflatten(-1, (len(layers), -1)).transpose(1, 2)


def build(shape: SimpleNamespace) -> nn.Module:
    inner: list[nn.Module] = [
        Block(shape.width, Heads(shape.fault, shape.width, shape.heads), two_layers(shape.width))
        for _ in range(shape.layers)
    ]
    return Vision(shape.size, shape.patch, shape.width, inner)
