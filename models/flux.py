"""FLUX.1 schnell, scaled to one GPU: a diffusion transformer of two streams, text and image, that become one.

Parameters of hidden h, D double and S single blocks, heads of w features, patches of p, texts of t and vectors of v:
D (36 h^2 + 30 h + 4 w) + S (15 h^2 + 11 h + 2 w) + 4 h^2 + (2 p + t + v + 264) h + p: 11,891,178,560 as published,
148,097,088 trimmed.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from models.vit import optimizer
from profzoo.harness.tasks import diffusion
from profzoo.harness.tasks.diffusion import loss
from profzoo.harness.tasks.mixers import Places, norm

GROUPS = ("diffusion", "transformer", "modern")
SOURCE = "Black Forest Labs 2024, the release of FLUX.1, after arXiv:2403.03206; parameters derived in the file"
PARAMETERS = 148_097_088
SHAPE = {
    "hidden": 3072, "heads": 24, "double": 19, "single": 38, "axes": [16, 56, 56], "channels": 16, "text": 4096,
    "vector": 768, "steps": 4,
}  # fmt: skip
# The reference has a sixth of the blocks; the trimmed one is a third as wide.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 256, "tokens": 64, "hidden": 1024, "heads": 8, "double": 2, "single": 4},
        "inference": {"batch": 2, "size": 256, "tokens": 64, "hidden": 1024, "heads": 8, "double": 2, "single": 4},
    },
    "reference": {
        "train": {"batch": 4, "size": 512, "tokens": 256, "double": 3, "single": 6},
        "inference": {"batch": 1, "size": 1024, "tokens": 256, "double": 3, "single": 6},
    },
}
REFERENCE = {
    "parameters": 11_891_178_560, "operations": 69_466_626_981_888,
    "source": "parameters as its weights have; operations derived",
}  # fmt: skip
# Width of the waves of a time.
WAVES = 256


class Attention(nn.Module):
    """Queries, keys and values of a stream, with norms of queries and keys, and what follows the attention."""

    def __init__(self, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(norm(hidden // heads) for _ in range(2))

    def parts(self, flow: Tensor) -> list[Tensor]:
        """From (batch, length, 3 hidden) to queries, keys and values (batch, heads, length, width)."""
        query, key, value = flow.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return [self.norms[0](query), self.norms[1](key), value]


def attend(parts: Sequence[Tensor], places: Places) -> Tensor:
    """Attention of all to all, (batch, length, hidden); queries and keys turn in fp32, as in the release."""
    query, key, value = parts
    query, key = (places.turn(one.float()).to(value.dtype) for one in (query, key))
    return scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


def modulate(flow: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """A layer norm whose bias and scale, (batch, 1, hidden), the conditions give."""
    return nn.functional.layer_norm(flow, flow.shape[-1:], eps=1e-6) * (1 + scale) + shift


class Stream(nn.Module):
    """One of the two streams of a double block."""

    def __init__(self, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.tell, self.attention = nn.Linear(hidden, 6 * hidden), Attention(hidden, heads)
        self.project, self.merge = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def enter(self, flow: Tensor, told: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """What the attention takes, and what the conditions say."""
        said = self.tell(silu(told)).chunk(6, dim=-1)
        return self.attention.parts(self.project(modulate(flow, *said[:2]))), said

    def leave(self, flow: Tensor, mixed: Tensor, said: tuple[Tensor, ...]) -> Tensor:
        """The stream after the block."""
        flow = flow + said[2] * self.merge(mixed)
        wide = gelu(self.widen(modulate(flow, *said[3:5])), approximate="tanh")
        return flow + said[5] * self.narrow(wide)


class Double(nn.Module):
    """Text and image in weights of their own, and one attention over both."""

    def __init__(self, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.streams = nn.ModuleList(Stream(hidden, heads) for _ in range(2))

    def forward(self, text: Tensor, image: Tensor, told: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Both streams after the block."""
        streams: list[Any] = list(self.streams)
        first, second = streams
        (mine, said), (theirs, heard) = first.enter(text, told), second.enter(image, told)
        mixed = attend([torch.cat(pair, dim=2) for pair in zip(mine, theirs, strict=True)], places)
        length = text.shape[1]
        return first.leave(text, mixed[:, :length], said), second.leave(image, mixed[:, length:], heard)


class Single(nn.Module):
    """Attention and two linear layers beside each other, over the one stream."""

    def __init__(self, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.tell, self.attention, self.hidden = nn.Linear(hidden, 3 * hidden), Attention(hidden, heads), hidden
        self.enter, self.leave = nn.Linear(hidden, 7 * hidden), nn.Linear(5 * hidden, hidden)

    def forward(self, flow: Tensor, told: Tensor, places: Places) -> Tensor:
        """The stream after the block."""
        shift, scale, gate = self.tell(silu(told)).chunk(3, dim=-1)
        raw, wide = self.enter(modulate(flow, shift, scale)).split((3 * self.hidden, 4 * self.hidden), dim=-1)
        mixed = attend(self.attention.parts(raw), places)
        return flow + gate * self.leave(torch.cat((mixed, gelu(wide, approximate="tanh")), dim=-1))


class Flux(nn.Module):
    """From (latents (batch, channels, height, width), time, text (batch, tokens, text), vector) to their direction."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes; axes: features of a head that turn with the text's place, the row and the column."""
        super().__init__()
        hidden, patch = shape.hidden, 4 * shape.channels
        self.axes, self.steps = shape.axes, shape.steps
        self.image, self.text = nn.Linear(patch, hidden), nn.Linear(shape.text, hidden)
        self.time = diffusion.two_layers(WAVES, hidden, hidden)
        self.vector = diffusion.two_layers(shape.vector, hidden, hidden)
        self.doubles = nn.ModuleList(Double(hidden, shape.heads) for _ in range(shape.double))
        self.singles = nn.ModuleList(Single(hidden, shape.heads) for _ in range(shape.single))
        self.tell, self.leave = nn.Linear(hidden, 2 * hidden), nn.Linear(hidden, patch)

    def forward(self, inputs: diffusion.Inputs) -> Tensor:
        """The direction, in the form of the latents."""
        latents, time, text, vector = inputs
        rows, columns, length = latents.shape[2] // 2, latents.shape[3] // 2, text.shape[1]
        patches = nn.functional.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)
        told = (self.time(diffusion.waves(time, WAVES)) + self.vector(vector))[:, None]
        places = self.places(length, rows, columns, latents.device)
        words, image = self.text(text), self.image(patches)
        for block in self.doubles:
            words, image = block(words, image, told, places)
        flow = torch.cat((words, image), dim=1)
        for block in self.singles:
            flow = block(flow, told, places)
        flow = self.leave(modulate(flow[:, length:], *self.tell(silu(told)).chunk(2, dim=-1)))
        return nn.functional.pixel_shuffle(flow.transpose(1, 2).unflatten(2, (rows, columns)), 2)

    def places(self, length: int, rows: int, columns: int, device: torch.device) -> Places:
        """All words are at the first place of each axis."""
        grid = torch.cartesian_prod(torch.arange(rows, device=device), torch.arange(columns, device=device))
        at = nn.functional.pad(grid, (1, 0, length, 0))
        rates = [10_000 ** -(torch.arange(0, width, 2, device=device) / width) for width in self.axes]
        angles = torch.cat([at[:, axis, None] * rate for axis, rate in enumerate(rates)], dim=1)
        return Places(at[:, 0], angles.cos(), angles.sin())


def build(shape: SimpleNamespace) -> Flux:
    """Build the network with random weights."""
    return Flux(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Latents, a time, a text's vectors and that of the whole text; what is looked for is the direction to the noise.

    Times between image (0) and noise (1) are drawn about the middle, as arXiv:2403.03206 found best (section 3.1).
    """
    clean, noise, *told = diffusion.draw(shape, generator, (shape.tokens, shape.text), (shape.vector,))
    time = torch.randn((), generator=generator).sigmoid()
    return ((1 - time) * clean + time * noise, time, *told), noise - clean


def infer(network: Flux, inputs: diffusion.Inputs) -> Tensor:
    """Images' latents from noise, along the direction in equal steps; this release takes no guidance."""
    latents, time, *told = inputs
    for step in range(network.steps):
        now = torch.full_like(time, 1 - step / network.steps)
        latents = latents - network((latents, now, *told)) / network.steps
    return latents


def compiled(network: Flux) -> Sequence[nn.Module]:
    """The blocks."""
    return (*network.doubles, *network.singles)
