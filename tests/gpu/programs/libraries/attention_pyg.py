"""A graph attention network of PyTorch Geometric on random graphs."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

SHAPE = {"points": 4096, "edges": 32768, "features": 64, "width": 32, "heads": 8, "classes": 40}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}


class Network(nn.Module):
    """Three attention layers over the joined graphs of a batch, and the scores of each graph's class."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        sizes = [shape.features, *[shape.heads * shape.width] * 2]
        self.layers = nn.ModuleList([GATConv(size, shape.width, heads=shape.heads) for size in sizes])
        self.head = nn.Linear(shape.heads * shape.width, shape.classes)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """From features (batch, points, features) and edges (batch, 2, edges) to scores (batch, classes)."""
        features, edges = inputs
        batch, points, _ = features.shape
        first = points * torch.arange(batch, device=edges.device)
        joined = (edges + first[:, None, None]).transpose(0, 1).flatten(1)
        hidden = features.flatten(0, 1)
        for layer in self.layers:
            hidden = functional.elu(layer(hidden, joined))
        return self.head(hidden.unflatten(0, (batch, points)).mean(1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], int]:
    features = torch.randn(shape.points, shape.features, generator=generator)
    edges = torch.randint(shape.points, (2, shape.edges), generator=generator)
    return (features, edges), int(torch.randint(shape.classes, (), generator=generator))
