"""Parts of training steps: something before or after an optimizer's step, and several small batches a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def nothing() -> None:
    """Do nothing."""


@dataclass
class Accompanied:
    """An optimizer with something done before and after its step, in the same range."""

    optimizer: torch.optim.Optimizer
    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing

    def step(self) -> None:
        self.before()
        self.optimizer.step()
        self.after()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)


def parts(inputs: Tensor, target: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Small batches of a batch."""
    return zip(inputs.chunk(count), target.chunk(count), strict=True)


def compute_loss(trainer: Any, inputs: Any, target: Tensor) -> Tensor:
    """Forward and loss in their ranges."""
    with trainer.forward():
        outputs = trainer.network(inputs)
    with trainer.loss():
        return trainer.model.loss(outputs, target)
