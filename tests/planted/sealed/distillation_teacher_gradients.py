"""A small vision transformer that learns from a large one, through which gradients go as well and are never used."""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Vision, blocks

SHAPE = {"fault": True, "size": 128, "patch": 8, "wide": 768, "narrow": 384, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 48}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "wide": 24, "narrow": 12, "layers": 1}
WARMTH = 4.0


def transformer(shape: SimpleNamespace, width: int) -> nn.Module:
    return Vision(shape.size, shape.patch, width, blocks(shape.layers, width, width // min(width // 2, 64)))


def build(shape: SimpleNamespace) -> nn.Module:
    network = transformer(shape, shape.narrow)
    network.fault = shape.fault
    return network


def others(shape: SimpleNamespace) -> nn.Module:
    return nn.ModuleDict({"teacher": transformer(shape, shape.wide)})


def optimizers(network: nn.Module, others: nn.Module) -> Sequence[torch.optim.Optimizer]:
    return [torch.optim.AdamW(network.parameters(), lr=5e-4)]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    with trainer.forward():
        own = trainer.network(images)
        with nullcontext() if trainer.network.fault else torch.no_grad():
            taught = trainer.others["teacher"](images)
    with trainer.loss():
        near = kl_div(log_softmax(own / WARMTH, -1), log_softmax(taught / WARMTH, -1), None, None, "batchmean", True)
        found = cross_entropy(own, labels) + WARMTH**2 * near
    trainer.update(found, trainer.optimizers[0])
    return found
