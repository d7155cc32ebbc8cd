"""A recommender whose choices are looked up by a product with one-hot vectors."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from models.dlrm import loss
from tests.planted.networks.samples import choices as sample

SHAPE = {"fault": True, "fields": 26, "rows": 30000, "dense": 13, "width": 64, "hidden": 512}
WORKLOADS = {"trimmed": {"train": {"batch": 1024}}}
TINY = {"batch": 4, "fields": 3, "rows": 20, "dense": 4, "width": 8, "hidden": 16}


class Recommender(nn.Module):
    """A vector for each choice, their products with each other, and three linear layers."""

    def __init__(self, fault: bool, fields: int, rows: int, dense: int, width: int, hidden: int) -> None:
        """fault: whether vectors are looked up by products."""
        super().__init__()
        self.fault, self.rows = fault, rows
        self.tables = nn.Parameter(0.05 * torch.randn(fields, rows, width))
        self.below = nn.Sequential(nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        wide = width + (fields + 1) ** 2
        self.above = nn.Sequential(
            nn.Linear(wide, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def look_up(self, chosen: Tensor) -> Tensor:
        """Vectors (batch, fields, width) of choices (batch, fields)."""
        if self.fault:
            hot = one_hot(chosen, self.rows).to(self.tables.dtype)
            return torch.einsum("bfr,frw->bfw", hot, self.tables)
        starts = torch.arange(len(self.tables), device=chosen.device) * self.rows
        return nn.functional.embedding(chosen + starts, self.tables.flatten(0, 1))

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        numbers, chosen = given
        below = self.below(numbers)
        vectors = torch.cat((below[:, None], self.look_up(chosen)), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.above(torch.cat((below, products), dim=1)).squeeze(1)


def build(shape: SimpleNamespace) -> nn.Module:
    return Recommender(shape.fault, shape.fields, shape.rows, shape.dense, shape.width, shape.hidden)
