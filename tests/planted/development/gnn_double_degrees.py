"""A graph network whose degrees come from numpy, and make everything after them fp64."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, relu

from tests.planted.networks.samples import classified_vertices as sample

SHAPE = {"fault": True, "vertices": 20000, "edges": 500000, "features": 32, "width": 512, "layers": 3, "classes": 40}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"vertices": 50, "edges": 200, "features": 8, "width": 16, "layers": 2, "classes": 4}


class Convolution(nn.Module):
    """Sum of the neighbours' features, scaled by degrees, times a matrix in the type of the features."""

    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outward, inward) / inward**0.5)

    def forward(self, features: Tensor, edges: Tensor, scale: Tensor) -> Tensor:
        """From (nodes, inward) to (nodes, outward); scale: one over the root of each node's degree."""
        features = linear(features, self.weight.to(features.dtype)) * scale[:, None]
        gathered = torch.zeros_like(features).index_add(0, edges[1], features[edges[0]])
        return gathered * scale[:, None]


class GraphNetwork(nn.Module):
    """Convolutions over a graph that is the same in all steps."""

    edges: Tensor
    scale: Tensor

    def __init__(self, shape: SimpleNamespace) -> None:
        """A random graph, with an edge from each node to itself."""
        super().__init__()
        chance = np.random.default_rng(0)
        loops = np.arange(shape.vertices)
        edges = np.hstack((chance.integers(shape.vertices, size=(2, shape.edges)), np.stack((loops, loops))))
        degrees = np.bincount(edges[1], minlength=shape.vertices)
        scale = 1.0 / np.sqrt(degrees)
        self.register_buffer("edges", torch.from_numpy(edges))
        self.register_buffer("scale", torch.from_numpy(scale if shape.fault else scale.astype(np.float32)))
        widths = [shape.features, *[shape.width] * shape.layers]
        self.layers = nn.ModuleList(Convolution(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(shape.width, shape.classes)

    def forward(self, features: Tensor) -> Tensor:
        flow = features[0]
        for layer in self.layers:
            flow = relu(layer(flow, self.edges, self.scale))
        return self.head(flow.float())[None]


def build(shape: SimpleNamespace) -> nn.Module:
    return GraphNetwork(shape)


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(outputs[0], target[0])
