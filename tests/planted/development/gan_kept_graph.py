"""An adversarial network that goes back through its generator when the discriminator is trained."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

SHAPE = {"fault": True, "size": 64, "noise": 128, "width": 96}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}
TINY = {"batch": 2, "size": 16, "noise": 8, "width": 4}


def generator(size: int, noise: int, width: int) -> nn.Module:
    """From (batch, noise) to images (batch, 3, size, size)."""
    layers: list[nn.Module] = [nn.Linear(noise, 8 * width * 16), nn.Unflatten(1, (8 * width, 4, 4))]
    maps, edge = 8 * width, 4
    while edge < size:
        half = max(maps // 2, width)
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(maps, half, 3, padding=1), nn.GroupNorm(4, half), nn.SiLU()]
        layers += [nn.Conv2d(half, half, 3, padding=1), nn.GroupNorm(4, half), nn.SiLU()]
        maps, edge = half, 2 * edge
    return nn.Sequential(*layers, nn.Conv2d(maps, 3, 3, padding=1), nn.Tanh())


def discriminator(size: int, width: int) -> nn.Module:
    """From images to scores (batch, 1)."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    maps, edge = width, size
    while edge > 4:
        layers += [nn.LeakyReLU(0.2), nn.Conv2d(maps, 2 * maps, 4, 2, padding=1)]
        maps, edge = 2 * maps, edge // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(maps * 16, 1))


def build(shape: SimpleNamespace) -> nn.Module:
    network = generator(shape.size, shape.noise, shape.width)
    network.fault = shape.fault
    return network


def others(shape: SimpleNamespace) -> nn.Module:
    return nn.ModuleDict({"discriminator": discriminator(shape.size, shape.width // 2)})


def optimizers(network: nn.Module, others: Any) -> Sequence[torch.optim.Optimizer]:
    return [torch.optim.Adam(part.parameters(), 2e-4, (0.5, 0.99)) for part in (network, others["discriminator"])]


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    noise = torch.randn(shape.noise, generator=generator)
    return noise, torch.randn(3, shape.size, shape.size, generator=generator).tanh()


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    noise, real = batch
    judge, (of_generator, of_judge) = trainer.others["discriminator"], trainer.optimizers
    with trainer.forward():
        made = trainer.network(noise)
        fake, true = judge(made if trainer.network.fault else made.detach()), judge(real)
    with trainer.loss():
        judged = softplus(fake).mean() + softplus(-true).mean()
    trainer.update(judged, of_judge)
    of_generator.zero_grad()
    with trainer.forward():
        fooled = judge(trainer.network(noise))
    with trainer.loss():
        loss = softplus(-fooled).mean()
    trainer.update(loss, of_generator)
    of_judge.zero_grad()
    return loss
