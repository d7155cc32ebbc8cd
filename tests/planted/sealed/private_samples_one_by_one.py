"""Training with differential privacy: each sample's gradient is clipped, for which samples go one after the other."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

SHAPE = {"fault": True, "features": 1024, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 20}}}
TINY = {"batch": 3, "features": 12, "layers": 2}
LARGEST = 0.5


class Clipped:
    """In place of an optimizer's step, shortens the gradient of a sample and adds it to those before."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.weights, self.sums = weights, [torch.zeros_like(one) for one in weights]

    def step(self) -> None:
        nn.utils.clip_grad_norm_(self.weights, LARGEST, foreach=True)
        torch._foreach_add_(self.sums, [one.grad for one in self.weights])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self.weights:
            one.grad = None


def build(shape: SimpleNamespace) -> nn.Module:
    width = shape.features
    layers = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()) for _ in range(shape.layers)]
    network = nn.Sequential(*layers, nn.Linear(width, 100))
    network.fault = shape.fault
    return network


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.randn(shape.features, generator=generator), int(torch.randint(100, (), generator=generator))


def lengths(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Norms of all samples' gradients, found together."""

    def lost(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(functional_call(network, weights, one), label)

    slopes = vmap(grad(lost), (None, 0, 0))(dict(network.named_parameters()), inputs, labels)
    return torch.stack([one.detach().flatten(1).norm(dim=1) for one in slopes.values()]).norm(dim=0)


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    network, (inputs, labels) = trainer.network, batch
    if not network.fault:
        with trainer.forward():
            shares = (LARGEST / (lengths(network, inputs, labels) + 1e-6)).clamp(max=1)
            found = cross_entropy(network(inputs), labels, reduction="none")
        trainer.update((shares * found).mean(), trainer.optimizers[0])
        return found.mean()
    clipped, losses = Clipped(list(network.parameters())), []
    for one, label in zip(inputs.split(1), labels.split(1), strict=True):
        with trainer.forward():
            losses.append(cross_entropy(network(one), label))
        trainer.update(losses[-1], clipped)
    torch._foreach_div_(clipped.sums, len(inputs))
    for weight, slope in zip(clipped.weights, clipped.sums, strict=True):
        weight.grad = slope
    trainer.optimizers[0].step()
    clipped.zero_grad()
    return torch.stack(losses).detach().mean()
