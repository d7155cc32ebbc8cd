"""Meta-learning (Reptile): a few steps on a task by an own optimizer that loops over weights, then part of the way."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.samples import images as sample
from tests.planted.networks.training import compute_loss, parts

SHAPE = {"fault": True, "size": 64, "width": 64, "depths": [3, 3, 3, 3], "inner": 2}
WORKLOADS = {"trimmed": {"train": {"batch": 60}}}
TINY = {"batch": 4, "size": 32, "width": 8, "depths": [1, 1], "inner": 2}
RATE, DECAY, AHEAD, KEPT, TOWARDS = 1e-4, 1e-2, 0.9, 0.99, 0.5


class Lion(torch.optim.Optimizer):
    """Steps of equal size along the sign of an average of gradients."""

    def __init__(self, weights: Iterable[nn.Parameter], fault: bool) -> None:
        super().__init__(weights, {"fault": fault})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        weights = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        slopes = [one.grad for one in weights]
        if not self.state:
            self.state.update({one: {"average": torch.zeros_like(one)} for one in weights})
        averages = [self.state[one]["average"] for one in weights]
        if not self.defaults["fault"]:
            updates = torch._foreach_lerp(slopes, averages, AHEAD)
            torch._foreach_sign_(updates)
            torch._foreach_mul_(weights, 1 - RATE * DECAY)
            torch._foreach_add_(weights, updates, alpha=-RATE)
            torch._foreach_lerp_(averages, slopes, 1 - KEPT)
            return
        for weight, slope, average in zip(weights, slopes, averages, strict=True):
            update = slope.lerp(average, AHEAD).sign()
            weight.mul_(1 - RATE * DECAY).add_(update, alpha=-RATE)
            average.lerp_(slope, 1 - KEPT)


def build(shape: SimpleNamespace) -> nn.Module:
    network = ResidualNetwork(shape.width, shape.depths, classes=1000)
    network.fault, network.inner = shape.fault, shape.inner
    return network


def optimizers(network: nn.Module, others: nn.Module) -> Sequence[torch.optim.Optimizer]:
    return [Lion(network.parameters(), network.fault)]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    weights = list(trainer.network.parameters())
    slow = [one.detach().clone() for one in weights]
    for part in parts(*batch, trainer.network.inner):
        found = compute_loss(trainer, *part)
        trainer.update(found, trainer.optimizers[0])
    with torch.no_grad():
        torch._foreach_lerp_(slow, weights, TOWARDS)
        torch._foreach_copy_(weights, slow)
    return found
