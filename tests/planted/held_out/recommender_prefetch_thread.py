"""A recommender whose next negative examples are drawn by a thread, in Python, while a step runs."""

import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.dlrm import loss
from tests.planted.networks.samples import choices as sample
from tests.planted.networks.training import compute_loss

SHAPE = {"fault": True, "fields": 20, "rows": 5000, "dense": 32, "width": 32, "hidden": 512, "drawn": 40000}
WORKLOADS = {"trimmed": {"train": {"batch": 2048}}}
TINY = {"batch": 4, "fields": 3, "rows": 20, "dense": 4, "width": 8, "hidden": 16, "drawn": 20}


class Negatives:
    """Draws items that users did not choose."""

    def __init__(self, rows: int, drawn: int, fault: bool) -> None:
        """drawn: how many for a step."""
        self.rows, self.drawn, self.fault = rows, drawn, fault
        self.pool, self.ready = ThreadPoolExecutor(1), np.zeros(0)

    def draw(self) -> None:
        if self.fault:
            chance = random.Random(0)
            self.ready = np.array(sorted(int(chance.random() * self.rows) for _ in range(self.drawn)))
        else:
            self.ready = np.sort(np.random.default_rng(0).integers(self.rows, size=self.drawn))


class Recommender(nn.Module):
    """A table for each field, crossing layers and linear layers."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(shape.rows, shape.width) for _ in range(shape.fields))
        wide = shape.dense + shape.fields * shape.width
        self.crosses = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
        self.above = nn.Sequential(nn.Linear(wide, shape.hidden), nn.ReLU(), nn.Linear(shape.hidden, 1))

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        numbers, chosen = given
        vectors = [table(field) for table, field in zip(self.tables, chosen.unbind(1), strict=True)]
        first = flow = torch.cat((numbers, *vectors), dim=1)
        for cross in self.crosses:
            flow = first * cross(flow) + flow
        return self.above(flow).squeeze(1)


def build(shape: SimpleNamespace) -> nn.Module:
    network = Recommender(shape)
    network.negatives = Negatives(shape.rows, shape.drawn, shape.fault)
    return network


def training_step(trainer: Any, batch: tuple[Any, Tensor]) -> Tensor:
    negatives = trainer.network.negatives
    drawn = negatives.pool.submit(negatives.draw)
    found = compute_loss(trainer, *batch)
    trainer.update(found, trainer.optimizers[0])
    drawn.result()
    return found
