"""Contrastive training of a convolutional network, whose slow copy follows it one tensor at a time."""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.samples import images as sample
from tests.planted.networks.training import Accompanied

SHAPE = {"fault": True, "size": 64, "width": 48, "depths": [4, 4, 6, 4]}
WORKLOADS = {"trimmed": {"train": {"batch": 24}}}
TINY = {"batch": 2, "size": 32, "width": 8, "depths": [1, 1]}
KEPT = 0.99


class Encoder(nn.Module):
    """A network, and the copy that follows it."""

    def __init__(self, fast: nn.Module, fault: bool) -> None:
        """fault: whether the copy follows by a loop."""
        super().__init__()
        self.fast, self.fault = fast, fault
        self.slow = copy.deepcopy(fast).requires_grad_(False)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            other = self.slow(images.flip(2))
        return normalize(self.fast(images)), normalize(other)

    def follow(self) -> None:
        """Have the copy follow by a hundredth."""
        # Parameters, and the means and variances of norms; not how many batches there were.
        slow, fast = (
            [one for one in network.state_dict().values() if one.is_floating_point()]
            for network in (self.slow, self.fast)
        )
        if not self.fault:
            torch._foreach_lerp_(slow, fast, 1 - KEPT)
            return
        for one, other in zip(slow, fast, strict=True):
            one.copy_(KEPT * one + (1 - KEPT) * other)


def build(shape: SimpleNamespace) -> nn.Module:
    return Encoder(ResidualNetwork(shape.width, shape.depths, classes=128), shape.fault)


def optimizers(network: Encoder, others: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(network.fast.parameters(), lr=0.03, momentum=0.9)]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, _ = batch
    with trainer.forward():
        one, other = trainer.network(images)
    with trainer.loss():
        found = cross_entropy(one @ other.T / 0.2, torch.arange(len(images), device=images.device))
    trainer.update(found, Accompanied(trainer.optimizers[0], after=trainer.network.follow))
    return found
