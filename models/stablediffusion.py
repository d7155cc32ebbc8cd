"""Stable Diffusion 1.5's U-Net: residual blocks that are told a time, and attention to a text, on latents.

Parameters derive from the configuration (320 channels, 859,520,964); the trimmed network has 128 channels.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention, silu

from models.vit import optimizer
from profzoo.harness.tasks import diffusion
from profzoo.harness.tasks.diffusion import CLOCK, loss

GROUPS = ("diffusion", "modern")
SOURCE = "Rombach et al. 2022, arXiv:2112.10752, and the release of version 1.5; parameters as its network has them"
PARAMETERS = 142_236_036
SHAPE = {"width": 320, "widths": [1, 2, 4, 4], "heads": 8, "channels": 4, "text": 768, "tokens": 77, "steps": 4}
# The reference is the published size and image; inference takes a few of the usual thirty steps or so.
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "size": 256, "width": 128}, "inference": {"batch": 2, "size": 256, "width": 128}},
    "reference": {"train": {"batch": 8, "size": 512}, "inference": {"batch": 8, "size": 512}},
}
REFERENCE = {
    "parameters": 859_520_964, "operations": 803_273_441_280,
    "source": "both as Kim et al. 2023 count them (arXiv:2305.15798), with attention, without layer norms",
}  # fmt: skip
# Groups of the norms; blocks per size; how much a text counts against an empty one.
GROUPED, DEPTH, GUIDANCE = 32, 2, 7.5
# How much of an image's variance is left at each time; the root of what a time takes of it grows evenly.
FIRST, LAST = 0.00085**0.5, 0.012**0.5
LEFT = list(accumulate((1 - (FIRST + (LAST - FIRST) * at / (CLOCK - 1)) ** 2 for at in range(CLOCK)), mul))


class Residual(nn.Module):
    """Two convolutions, between which a vector of the time is added, and what went in."""

    def __init__(self, inward: int, outward: int, told: int) -> None:
        """told: width of the time's vector."""
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPED, width) for width in (inward, outward))
        self.first, self.second = (nn.Conv2d(width, outward, 3, padding=1) for width in (inward, outward))
        self.tell = nn.Linear(told, outward)
        self.around = nn.Conv2d(inward, outward, 1) if inward != outward else nn.Identity()

    def forward(self, maps: Tensor, told: Tensor, text: Tensor) -> Tensor:
        """Maps of the same size."""
        inner = self.first(silu(self.norms[0](maps))) + self.tell(silu(told))[:, :, None, None]
        return self.around(maps) + self.second(silu(self.norms[1](inner)))


class Attention(nn.Module):
    """Attention of the places of an image to a text, or to each other."""

    def __init__(self, width: int, heads: int, other: int) -> None:
        """other: width of what is attended to."""
        super().__init__()
        self.heads, self.query = heads, nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(other, width, bias=False) for _ in range(2))
        self.merge = nn.Linear(width, width)

    def forward(self, flow: Tensor, other: Tensor) -> Tensor:
        """From (batch, places, width) to the same."""
        query, key, value = (
            layer(given).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, given in ((self.query, flow), (self.key, other), (self.value, other))
        )
        return self.merge(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Attention of places to each other and to the text, and a gated network for each, added to the maps."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        """Heads divide width; text: width of its vectors."""
        super().__init__()
        self.norm = nn.GroupNorm(GROUPED, width, eps=1e-6)
        self.enter, self.leave = (nn.Conv2d(width, width, 1) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.inner, self.outer = Attention(width, heads, width), Attention(width, heads, text)
        self.widen, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, maps: Tensor, told: Tensor, text: Tensor) -> Tensor:
        """Maps of the same size."""
        flow = self.enter(self.norm(maps)).flatten(2).transpose(1, 2)
        flow = flow + self.inner(first := self.norms[0](flow), first)
        flow = flow + self.outer(self.norms[1](flow), text)
        wide, gate = self.widen(self.norms[2](flow)).chunk(2, dim=-1)
        flow = flow + self.narrow(wide * gelu(gate))
        return maps + self.leave(flow.transpose(1, 2).unflatten(2, maps.shape[2:]))


class Resize(nn.Module):
    """A convolution to half the size, or of twice the size."""

    def __init__(self, width: int, up: bool) -> None:
        """width: maps in and out."""
        super().__init__()
        self.up, self.layer = up, nn.Conv2d(width, width, 3, 1 if up else 2, padding=1)

    def forward(self, maps: Tensor, told: Tensor, text: Tensor) -> Tensor:
        """Maps of the other size."""
        return self.layer(interpolate(maps, scale_factor=2.0) if self.up else maps)


class Step(nn.ModuleList):
    """Layers one after the other, each of which takes the time and the text as well."""

    def forward(self, maps: Tensor, told: Tensor, text: Tensor) -> Tensor:
        """Maps of the last layer."""
        for layer in self:
            maps = layer(maps, told, text)
        return maps


class UNet(nn.Module):
    """From (latents, time, text) to the noise; each step up also takes the maps of one on the way down."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """widths: of each size, in units of width; the smallest size has no attention."""
        super().__init__()
        self.width, self.steps, told = shape.width, shape.steps, 4 * shape.width
        widths = [shape.width * times for times in shape.widths]
        self.time = diffusion.two_layers(shape.width, told, told)
        self.enter = nn.Conv2d(shape.channels, shape.width, 3, padding=1)

        def block(inward: int, outward: int, attends: bool) -> list[nn.Module]:
            residual = Residual(inward, outward, told)
            return [residual, Transformer(outward, shape.heads, shape.text)] if attends else [residual]

        down, up, passed, width, last = [], [], [shape.width], shape.width, len(widths) - 1
        for level, outward in enumerate(widths):
            for _ in range(DEPTH):
                down.append(Step(block(width, outward, level < last)))
                width = outward
                passed.append(width)
            if level < last:
                down.append(Step([Resize(width, up=False)]))
                passed.append(width)
        self.middle = Step([*block(width, width, attends=True), *block(width, width, attends=False)])
        for level in range(last, -1, -1):
            for turn in range(DEPTH + 1):
                step = block(width + passed.pop(), widths[level], level < last)
                width = widths[level]
                up.append(Step([*step, Resize(width, up=True)] if level and turn == DEPTH else step))
        self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
        self.norm, self.leave = nn.GroupNorm(GROUPED, width), nn.Conv2d(width, shape.channels, 3, padding=1)

    def forward(self, inputs: diffusion.Inputs) -> Tensor:
        """The noise, in the form of the latents."""
        latents, time, text = inputs
        told = self.time(diffusion.waves(time, self.width))
        passed = [self.enter(latents)]
        for step in self.down:
            passed.append(step(passed[-1], told, text))
        maps = self.middle(passed[-1], told, text)
        for step in self.up:
            maps = step(torch.cat((maps, passed.pop()), dim=1), told, text)
        return self.leave(silu(self.norm(maps)))


def build(shape: SimpleNamespace) -> UNet:
    """Build the network with random weights."""
    return UNet(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Latents, a time and a text's vectors; what is looked for is the noise in the latents."""
    clean, noise, text = diffusion.draw(shape, generator, (shape.tokens, shape.text))
    at = int(torch.randint(CLOCK, (), generator=generator))
    return (LEFT[at] ** 0.5 * clean + (1 - LEFT[at]) ** 0.5 * noise, torch.tensor(at / CLOCK), text), noise


def infer(network: UNet, inputs: diffusion.Inputs) -> Tensor:
    """Images' latents from noise, without chance (DDIM, Song et al. 2020, arXiv:2010.02502).

    Each pass has every text and an empty one, whose noises are compared (Ho and Salimans 2022, arXiv:2207.12598).
    """
    latents, time, text = inputs
    texts, stride = torch.cat((torch.zeros_like(text), text)), CLOCK // network.steps
    for at in range((network.steps - 1) * stride + 1, 0, -stride):
        now, after = LEFT[at], LEFT[max(at - stride, 0)]
        given = (torch.cat((latents, latents)), torch.full_like(time, at / CLOCK).repeat(2), texts)
        empty, told = network(given).chunk(2)
        noise = empty + GUIDANCE * (told - empty)
        clean = (latents - (1 - now) ** 0.5 * noise) / now**0.5
        latents = after**0.5 * clean + (1 - after) ** 0.5 * noise
    return latents
