"""Clouds of points that are turned on the GPU, and whose neighbours a tree on the host then finds."""

from types import SimpleNamespace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn

SHAPE = {"fault": True, "points": 512, "near": 16, "width": 128, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "points": 24, "near": 4, "width": 8, "layers": 2}


class Edges(nn.Module):
    """The largest of what layers make of a point and of its difference from each neighbour."""

    def __init__(self, inward: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * inward, width), nn.GELU(), nn.Linear(width, width), nn.GELU())

    def forward(self, features: Tensor, rows: Tensor) -> Tensor:
        """From (batch, points, inward); rows: of neighbours in all clouds together, (batch, points, near)."""
        others = features.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        own = features[:, :, None].expand_as(others)
        return self.body(torch.cat((own, others - own), -1)).amax(2)


class Cloud(nn.Module):
    """Class scores of clouds (batch, points, 3)."""

    def __init__(self, fault: bool, near: int, width: int, layers: int) -> None:
        super().__init__()
        self.fault, self.near = fault, near
        self.layers = nn.ModuleList(Edges(width if layer else 3, width) for layer in range(layers))
        self.head = nn.Linear(width, 40)

    def neighbours(self, points: Tensor) -> Tensor:
        """The nearest of each point, itself too."""
        if self.fault:
            found = [cKDTree(cloud).query(cloud, self.near)[1] for cloud in points.cpu().numpy()]
            return torch.from_numpy(np.stack(found)).to(points.device)
        apart = (points[:, :, None] - points[:, None]).square().sum(-1)
        return apart.topk(self.near, largest=False).indices

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        points, turn = given
        points = points @ turn
        starts = torch.arange(len(points), device=points.device) * points.shape[1]
        rows, flow = self.neighbours(points) + starts[:, None, None], points
        for layer in self.layers:
            flow = layer(flow, rows)
        return self.head(flow.amax(1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Cloud(shape.fault, shape.near, shape.width, shape.layers)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], int]:
    """A cloud, a rotation, and a class."""
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator))[0]
    label = int(torch.randint(40, (), generator=generator))
    return (torch.randn(shape.points, 3, generator=generator), turn), label
