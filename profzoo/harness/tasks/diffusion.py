"""Images from noise, in the latent space of an autoencoder; that and the network that reads a text are left out.

A network maps ((latents, time, *conditions),) to the noise, or to the direction to it by flow matching (Lipman et al.
2022, arXiv:2210.02747). shape: `size` in pixels, `channels` of the latents, `steps` of inference.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn

# Pixels of an edge for one latent, and how many times per step of the clock the networks count.
SCALE, CLOCK = 8, 1000
Inputs = Sequence[Tensor]


def draw(shape: SimpleNamespace, generator: torch.Generator, *conditions: Sequence[int]) -> list[Tensor]:
    """Latents of an image and noise, both (channels, size / 8, size / 8), and conditions."""
    edge = shape.size // SCALE
    sizes = [(shape.channels, edge, edge)] * 2
    return [torch.randn(*size, generator=generator) for size in (*sizes, *conditions)]


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of the direction or the noise."""
    return nn.functional.mse_loss(outputs, target)


def waves(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of times (batch,), as (batch, width)."""
    rates = 10_000 ** -(torch.arange(width // 2, device=time.device) / (width // 2))
    angles = CLOCK * time[:, None].float() * rates
    return torch.cat((angles.cos(), angles.sin()), dim=1)


def two_layers(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Two linear layers with SiLU between them."""
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))
