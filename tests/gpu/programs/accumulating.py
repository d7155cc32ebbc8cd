"""A training step of several backward passes before its update; `once` sends gradients in the last one only."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

PASSES = 4
SHAPE = {"width": 4096, "layers": 4, "once": False}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}


class Network(nn.Sequential):
    """Linear layers of equal width."""

    def __init__(self, width: int, layers: int, once: bool) -> None:
        """once: whether the step sends gradients once."""
        super().__init__(*(nn.Linear(width, width) for _ in range(layers)))
        self.once = once


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape.width, shape.layers, shape.once)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(shape.width, generator=generator), torch.rand(shape.width, generator=generator)


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, target = batch
    network = trainer.network
    once = network.module.once
    for number in range(PASSES):
        last = number == PASSES - 1
        with network.no_sync() if once and not last else nullcontext():
            with trainer.forward():
                outputs = network(inputs)
            with trainer.loss():
                loss = (outputs - target).square().mean() / PASSES
            trainer.update(loss, *(trainer.optimizers if last else ()))
    return loss
