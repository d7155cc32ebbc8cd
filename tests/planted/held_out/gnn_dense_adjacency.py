"""A graph network that sums over neighbours by a product with the whole adjacency matrix."""

from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import classified_vertices as sample

SHAPE = {"fault": True, "vertices": 16384, "edges": 80000, "features": 32, "width": 256, "layers": 4, "classes": 20}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"vertices": 40, "edges": 160, "features": 8, "width": 16, "layers": 2, "classes": 4}


class Layer(nn.Module):
    """A node's own features and those of its neighbours, by a linear layer each."""

    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        self.own, self.of_others = nn.Linear(inward, outward), nn.Linear(inward, outward, bias=False)
        self.norm = nn.LayerNorm(outward)

    def forward(self, features: Tensor, neighbours: Tensor) -> Tensor:
        return torch.relu(self.norm(self.own(features) + self.of_others(neighbours)))


class Sage(nn.Module):
    """Layers over a graph that is the same in all steps."""

    source: Tensor
    into: Tensor

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(1)
        source, into = torch.randint(shape.vertices, (2, shape.edges), generator=chance)
        self.fault = shape.fault
        self.register_buffer("source", source)
        self.register_buffer("into", into)
        if shape.fault:
            matrix = torch.zeros(shape.vertices, shape.vertices)
            self.register_buffer("matrix", matrix.index_put((into, source), torch.ones(shape.edges), accumulate=True))
        widths = [shape.features, *[shape.width] * shape.layers]
        self.layers = nn.ModuleList(Layer(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(shape.width, shape.classes)

    def gather(self, features: Tensor) -> Tensor:
        """Sum of the neighbours' features."""
        if self.fault:
            return self.matrix @ features
        return torch.zeros_like(features).index_add(0, self.into, features[self.source])

    def forward(self, features: Tensor) -> Tensor:
        flow = features.squeeze(0)
        for layer in self.layers:
            flow = layer(flow, self.gather(flow))
        return self.head(flow)[None]


def build(shape: SimpleNamespace) -> nn.Module:
    return Sage(shape)
