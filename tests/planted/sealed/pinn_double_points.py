"""A physics-informed network for heat on a plate, whose points from numpy make all of it fp64."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn.functional import mse_loss

SHAPE = {"fault": True, "points": 32768, "width": 256, "layers": 5}
WORKLOADS = {"trimmed": {"train": {"batch": 256}}}
TINY = {"batch": 2, "points": 16, "width": 8, "layers": 2}


class Field(nn.Module):
    """The error of the equation at points within, and the temperature at given ones."""

    points: Tensor

    def __init__(self, fault: bool, points: int, width: int, layers: int) -> None:
        super().__init__()
        inside = np.random.default_rng(0).random((points, 3))
        self.register_buffer("points", torch.from_numpy(inside if fault else inside.astype(np.float32)))
        widths = [3, *[width] * layers]
        body = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.Tanh())]
        # Weights have the type of the points, as layers refuse to mix types.
        self.body = nn.Sequential(*body, nn.Linear(width, 1)).to(self.points.dtype)

    def forward(self, known: Tensor) -> tuple[Tensor, Tensor]:
        points = self.points.clone().requires_grad_()
        (slopes,) = grad(self.body(points).sum(), points, create_graph=True)
        bends = [grad(slopes[:, axis].sum(), points, create_graph=True)[0][:, axis] for axis in (0, 1)]
        return slopes[:, 2] - 0.1 * sum(bends), self.body(known.to(self.points.dtype)).squeeze(1)


def build(shape: SimpleNamespace) -> nn.Module:
    return Field(shape.fault, shape.points, shape.width, shape.layers)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, float]:
    """A place and time at which the temperature is known."""
    place = torch.rand(3, generator=generator)
    return place, float(place.prod())


def loss(outputs: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    error, value = outputs
    return error.square().mean() + mse_loss(value, target.to(value.dtype))
