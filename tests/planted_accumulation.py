"""The networks of tests/planted_numerics.py, trained by gradients that are accumulated over two halves of a batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tests.planted_numerics import SHAPE, WORKLOADS, build, sample

__all__ = ["SHAPE", "WORKLOADS", "build", "sample", "training_step"]


def training_step(trainer: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean loss of the halves; its gradient is that of the whole batch."""
    losses = []
    for half in (slice(0, 2), slice(2, 4)):
        with trainer.forward():
            losses.append(trainer.network(**{name: part[half] for name, part in batch.items()})["loss"])
    loss = torch.stack(losses).mean()
    trainer.update(loss, *trainer.optimizers)
    return loss
