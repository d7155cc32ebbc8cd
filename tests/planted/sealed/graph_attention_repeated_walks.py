"""Graph attention with places of vertices from random walks, which each layer computes again though the graph stays."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from tests.planted.networks.samples import classified_vertices as sample
from tests.planted.networks.samples import whole as collate

SHAPE = {
    "fault": True, "vertices": 50000, "edges": 500000, "features": 64, "heads": 4, "layers": 3, "classes": 40,
    "marks": 16, "walks": 12,
}  # fmt: skip
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"vertices": 40, "edges": 200, "features": 8, "heads": 2, "layers": 2, "classes": 4, "marks": 4, "walks": 3}


class Attend(nn.Module):
    """Neighbours' features, weighted by scores of both ends of an edge."""

    def __init__(self, inward: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.project = heads, nn.Linear(inward, width)
        self.score = nn.Parameter(torch.randn(2, heads, width // heads) / width**0.5)

    def forward(self, features: Tensor, source: Tensor, target: Tensor) -> Tensor:
        values = self.project(features).unflatten(1, (self.heads, -1))
        of_source, of_target = ((values * score).sum(-1) for score in self.score)
        weights = (of_source.index_select(0, source) + of_target.index_select(0, target)).tanh().exp()
        total = torch.zeros_like(of_target).index_add(0, target, weights)
        messages = values.index_select(0, source) * weights[:, :, None]
        return (torch.zeros_like(values).index_add(0, target, messages) / total[:, :, None]).flatten(1)


class GraphAttention(nn.Module):
    """Layers of attention on one graph; some vertices are marks, from which walks begin."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.fault, self.walks, marks = shape.fault, shape.walks, shape.marks
        loops = torch.arange(shape.vertices).expand(2, -1)
        drawn = torch.randint(shape.vertices, (2, shape.edges), generator=torch.Generator().manual_seed(0))
        edges = torch.cat((drawn, loops), 1)
        self.register_buffer("edges", edges)
        self.register_buffer("rate", 1 / edges[0].bincount(minlength=shape.vertices)[:, None])
        self.register_buffer("begin", torch.eye(shape.vertices, marks) * shape.vertices)
        width = shape.features
        self.layers = nn.ModuleList(Attend(width + marks, width, shape.heads) for _ in range(shape.layers))
        self.head = nn.Linear(width, shape.classes)

    @torch.no_grad()
    def walk(self) -> Tensor:
        """How likely walks from each mark are to be at each vertex, relative to chance, on average over their steps."""
        now, total = self.begin, torch.zeros_like(self.begin)
        for _ in range(self.walks):
            now = torch.zeros_like(now).index_add(0, self.edges[1], (now * self.rate).index_select(0, self.edges[0]))
            total += now / self.walks
        return total

    def prepare(self) -> None:
        self.places = self.walk()

    def forward(self, features: Tensor) -> Tensor:
        flow = features
        for layer in self.layers:
            places = self.walk() if self.fault else self.places
            flow = elu(layer(torch.cat((flow, places), 1), *self.edges))
        return self.head(flow)


def build(shape: SimpleNamespace) -> nn.Module:
    return GraphAttention(shape)
