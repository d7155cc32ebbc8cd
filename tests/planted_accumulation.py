"""The networks of tests/planted_numerics.py, trained by gradients that are accumulated over two halves of a batch."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests import planted_numerics

SHAPE = {"network": "transformer", "changed": "none", "dropout": 0.0}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return planted_numerics.build(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> Mapping[str, Tensor]:
    return planted_numerics.sample(shape, generator)


def training_step(trainer: Any, batch: Mapping[str, Tensor]) -> Tensor:
    losses = []
    for half in (slice(0, 2), slice(2, 4)):
        with trainer.forward():
            losses.append(trainer.network(**{name: part[half] for name, part in batch.items()})["loss"])
    loss = torch.stack(losses).mean()
    trainer.update(loss, *trainer.optimizers)
    return loss
