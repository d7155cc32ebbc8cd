"""Images from noise by flow matching (Lipman et al. 2022, arXiv:2210.02747), in the latent space of an autoencoder.

A network maps ((latents, time, *conditions),) to the direction from the image to the noise. shape: `size` in pixels,
`channels` of the latents, `steps` of inference.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn

# Pixels of an edge for one latent, and how many times per step of the clock the networks count.
SCALE, CLOCK = 8, 1000
Inputs = Sequence[Tensor]


def draw(
    shape: SimpleNamespace, generator: torch.Generator, *conditions: Sequence[int]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """((latents (channels, size / 8, size / 8) between image and noise, time in [0, 1], conditions), direction)."""
    edge = shape.size // SCALE
    clean, noise = torch.randn(2, shape.channels, edge, edge, generator=generator)
    time = torch.rand((), generator=generator)
    told = [torch.randn(*size, generator=generator) for size in conditions]
    return ((1 - time) * clean + time * noise, time, *told), noise - clean


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of the direction."""
    return nn.functional.mse_loss(outputs, target)


def generate(network: nn.Module, inputs: Inputs, steps: int) -> Tensor:
    """Follow the direction from the latents, taken as noise, to an image in so many equal steps."""
    latents, time, *told = inputs
    for step in range(steps):
        latents = latents - network((latents, torch.full_like(time, 1 - step / steps), *told)) / steps
    return latents


def waves(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of times (batch,), as (batch, width)."""
    rates = 10_000 ** -(torch.arange(width // 2, device=time.device) / (width // 2))
    angles = CLOCK * time[:, None].float() * rates
    return torch.cat((angles.cos(), angles.sin()), dim=1)


def two_layers(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Two linear layers with SiLU between them."""
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))
