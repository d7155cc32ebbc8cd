"""A recommender of one sparse embedding and a dense tower, as DLRM has them (Naumov et al. 2019, arXiv:1906.00091).

`EmbeddingBag(sparse=True)` gives sparse gradients, and no optimizer is defined here.

Parameters by hand, of 10,000 rows of 16, 8 dense features, 32 hidden units and 2 classes:
10_000 * 16 + (16 + 8) * 32 + 32 + 32 * 2 + 2 = 160_866.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

PARAMETERS = 160_866
SHAPE = {"rows": 10_000, "width": 16, "ids": 4, "dense": 8, "hidden": 32, "classes": 2}
WORKLOADS = {"trimmed": {"train": {"batch": 16}, "inference": {"batch": 16}}}


class Network(nn.Module):
    """The mean of a few rows beside dense features, through a tower."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.rows = nn.EmbeddingBag(shape.rows, shape.width, sparse=True, mode="mean")
        self.tower = nn.Sequential(
            nn.Linear(shape.width + shape.dense, shape.hidden), nn.ReLU(), nn.Linear(shape.hidden, shape.classes)
        )

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """From numbers of rows (batch, ids) and features (batch, dense) to scores of classes."""
        ids, features = inputs
        return self.tower(torch.cat([self.rows(ids), features], dim=1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], int]:
    ids = torch.randint(shape.rows, (shape.ids,), generator=generator)
    return (ids, torch.randn(shape.dense, generator=generator)), int(
        torch.randint(shape.classes, (), generator=generator)
    )
