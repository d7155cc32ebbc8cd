"""A relational graph attention network: vertices attend to their neighbours by each kind of edge, as in MLPerf's RGAT.

All vertices are of one kind here, and each relation may join any two of them.
Parameters of inputs i, hidden h, R relations, L layers and c classes: R (i h + 3 h) + (L - 1) R (h^2 + 3 h) + h c + c.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("graph", "modern")
SOURCE = "Busbridge et al. 2019, arXiv:1904.05811, sizes of MLPerf's R-GAT; parameters derived in the file"
PARAMETERS = 13_115_303
SHAPE = {"features": 1024, "hidden": 512, "heads": 4, "layers": 3, "relations": 11, "classes": 2983}
# A sample is a part of the graph, with so many edges of each kind.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "vertices": 1024, "edges": 2048},
        "inference": {"batch": 2, "vertices": 1024, "edges": 2048},
    },
    "reference": {
        "train": {"batch": 8, "vertices": 8192, "edges": 16_384},
        "inference": {"batch": 8, "vertices": 8192, "edges": 16_384},
    },
}
REFERENCE = {
    "parameters": 13_115_303, "operations": 214_001_778_688,
    "source": "both derived from the benchmark's configuration",
}  # fmt: skip


class Relation(nn.Module):
    """Attention of vertices to those from which edges of one kind come."""

    def __init__(self, inputs: int, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.heads, self.project = heads, nn.Linear(inputs, hidden, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(heads, hidden // heads) / heads) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, flow: Tensor, edges: Tensor) -> Tensor:
        """From (vertices, inputs) and edges (2, count), from and to, to (vertices, hidden)."""
        source, target = edges
        flow = self.project(flow).unflatten(-1, (self.heads, -1))
        scores = (flow * self.source).sum(-1)[source] + (flow * self.target).sum(-1)[target]
        scores = leaky_relu(scores, 0.2)
        # The softmax over the edges that arrive at a vertex.
        to = target[:, None].expand_as(scores)
        most = scores.new_zeros(len(flow), self.heads).scatter_reduce(0, to, scores.detach(), "amax")
        weights = (scores - most[target]).exp()
        sums = weights.new_zeros(len(flow), self.heads).index_add(0, target, weights)
        messages = (weights / sums[target])[..., None] * flow[source]
        return messages.new_zeros(flow.shape).index_add(0, target, messages).flatten(1) + self.bias


class Layer(nn.ModuleList):
    """The sum of all relations."""

    def forward(self, flow: Tensor, kinds: Tensor) -> Tensor:
        """From (vertices, inputs) and edges (relations, 2, count) to (vertices, hidden)."""
        return torch.stack([one(flow, edges) for one, edges in zip(self, kinds.unbind(), strict=True)]).sum(0)


class RGAT(nn.Module):
    """From (features (batch, vertices, features), edges (batch, relations, 2, edges)) to scores of each vertex."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes as the shape says."""
        super().__init__()
        sizes = [shape.features, *[shape.hidden] * (shape.layers - 1)]
        self.layers = nn.ModuleList(
            Layer(Relation(size, shape.hidden, shape.heads) for _ in range(shape.relations)) for size in sizes
        )
        self.head, self.dropout = nn.Linear(shape.hidden, shape.classes), nn.Dropout(0.2)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Scores (batch, vertices, classes); the parts of a batch are one graph."""
        features, edges = inputs
        batch, vertices = features.shape[:2]
        first = vertices * torch.arange(batch, device=edges.device)[:, None, None, None]
        kinds, flow = (edges + first).permute(1, 2, 0, 3).flatten(2), features.flatten(0, 1)
        for layer in self.layers[:-1]:
            flow = self.dropout(leaky_relu(layer(flow, kinds)))
        return self.head(self.layers[-1](flow, kinds)).unflatten(0, (batch, vertices))


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return RGAT(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A graph's features (vertices, features) and edges (relations, 2, edges), and the vertices' classes."""
    features = torch.randn(shape.vertices, shape.features, generator=generator)
    edges = torch.randint(shape.vertices, (shape.relations, 2, shape.edges), generator=generator)
    return (features, edges), torch.randint(shape.classes, (shape.vertices,), generator=generator)
