"""Whisper base: a spectrogram is encoded, and a decoder that attends to it writes the text, from a cache in inference.

Parameters of hidden h, L layers each of encoder and decoder, m bands, v words with tied scores, t places of the text:
3 m h + 3 h^2 + 2 h + L (12 h^2 + 12 h) + L (16 h^2 + 17 h) + 4 h + v h + t h, which makes base.en's 71,825,408.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from models.vit import optimizer
from profzoo.harness.tasks import diffusion, tokens
from profzoo.harness.tasks.mixers import Cache
from profzoo.harness.tasks.tokens import cross_entropy as loss
from profzoo.harness.tasks.tokens import note_token

GROUPS = ("speech", "language", "transformer", "modern")
SOURCE = "Radford et al. 2022, arXiv:2212.04356, table 1, base; parameters as its release counts those of base.en"
PARAMETERS = 71_825_408
SHAPE = {"vocabulary": 51_864, "positions": 448, "hidden": 512, "layers": 6, "heads": 8, "bands": 80, "frames": 3000}
# A spectrogram of 3000 frames is half a minute.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "tokens": 64, "generated": 16},
        "inference": {"batch": 2, "tokens": 64, "generated": 16},
    },
    "reference": {
        "train": {"batch": 16, "tokens": 224, "generated": 64},
        "inference": {"batch": 16, "tokens": 224, "generated": 64},
    },
}
REFERENCE = {
    "parameters": 71_825_408, "operations": 123_311_554_560,
    "source": "parameters as its notebook prints them; operations derived",
}  # fmt: skip
START = 1


class Attention(nn.Module):
    """Attention, whose keys have no bias."""

    def __init__(self, hidden: int, heads: int) -> None:
        """Heads divide hidden."""
        super().__init__()
        self.heads = heads
        self.query, self.value, self.merge = (nn.Linear(hidden, hidden) for _ in range(3))
        self.key = nn.Linear(hidden, hidden, bias=False)

    def pair(self, flow: Tensor) -> Cache:
        """Keys and values, (batch, heads, length, width)."""
        return self._divide(self.key(flow)), self._divide(self.value(flow))

    def forward(self, flow: Tensor, pair: Cache, seen: Tensor | None = None, causal: bool = False) -> Tensor:
        """What comes out for (batch, length, hidden); seen: which keys each token may look at."""
        (key, value), query = pair, self._divide(self.query(flow))
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=causal)
        return self.merge(mixed.transpose(1, 2).flatten(2))

    def _divide(self, flow: Tensor) -> Tensor:
        return flow.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention to each other and, in the decoder, to the sound, and two linear layers."""

    def __init__(self, hidden: int, heads: int, listens: bool) -> None:
        """listens: whether it is of the decoder."""
        super().__init__()
        self.inner, self.outer = Attention(hidden, heads), Attention(hidden, heads) if listens else None
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(3 if listens else 2))
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(
        self, flow: Tensor, at: Tensor | None = None, sound: Cache | None = None, cache: Cache | None = None
    ) -> Tensor:
        """What comes out for (batch, length, hidden) at these places.

        sound: keys and values of the sound; cache: those of all tokens, of which a single one is new.
        """
        entered = self.norms[0](flow)
        pair, seen = self.inner.pair(entered), None
        if cache and at is not None:
            for kept, new in zip(cache, pair, strict=True):
                kept.index_copy_(2, at, new.to(kept.dtype))
            pair, seen = cache, torch.arange(cache[0].shape[2], device=flow.device) <= at[:, None]
        flow = flow + self.inner(entered, pair, seen, causal=self.outer is not None and cache is None)
        if self.outer is not None and sound is not None:
            flow = flow + self.outer(self.norms[1](flow), sound)
        return flow + self.narrow(gelu(self.widen(self.norms[-1](flow))))


class Whisper(nn.Module):
    """From (spectrograms (batch, bands, frames), tokens (batch, length)) to scores of each next token."""

    waves: Tensor

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes, and generated: tokens made in inference."""
        super().__init__()
        hidden, self.generated = shape.hidden, shape.generated
        self.hear = nn.Sequential(
            nn.Conv1d(shape.bands, hidden, 3, padding=1), nn.GELU(),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1), nn.GELU(),
        )  # fmt: skip
        places = torch.arange(shape.frames // 2) / diffusion.CLOCK
        self.register_buffer("waves", diffusion.waves(places, hidden), persistent=False)
        self.encoder, self.decoder = (
            nn.ModuleList(Block(hidden, shape.heads, listens) for _ in range(shape.layers)) for listens in (False, True)
        )
        self.words, self.places = nn.Embedding(shape.vocabulary, hidden), nn.Embedding(shape.positions, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Scores (batch, length, vocabulary)."""
        spectrogram, text = inputs
        return self.read(text, self.listen(spectrogram))

    def listen(self, spectrogram: Tensor) -> list[Cache]:
        """Keys and values of the sound, for each layer of the decoder."""
        flow = self.hear(spectrogram).transpose(1, 2) + self.waves
        for block in self.encoder:
            flow = block(flow)
        flow = self.norms[0](flow)
        blocks: list[Any] = list(self.decoder)
        return [block.outer.pair(flow) for block in blocks]

    def read(self, text: Tensor, sounds: Sequence[Cache], caches: Sequence[Cache] = (), place: int = 0) -> Tensor:
        """Scores of tokens, which begin at this place."""
        at = torch.arange(place, place + text.shape[1], device=text.device)
        flow = self.words(text) + self.places(at)
        for index, block in enumerate(self.decoder):
            flow = block(flow, at, sounds[index], caches[index] if caches else None)
        return linear(self.norms[1](flow), self.words.weight)

    def generate(self, spectrogram: Tensor, count: int) -> Tensor:
        """The likeliest text, (batch, count), one token at a time."""
        sounds, found = self.listen(spectrogram), [torch.full((len(spectrogram), 1), START, device=spectrogram.device)]
        size = (len(spectrogram), sounds[0][0].shape[1], count, sounds[0][0].shape[3])
        caches = [tuple(one.new_zeros(size) for one in pair) for pair in sounds]
        for place in range(count):
            found.append(self.read(found[-1], sounds, caches, place).argmax(-1))
            note_token()
        return torch.cat(found[1:], dim=1)


def build(shape: SimpleNamespace) -> Whisper:
    """Build the network with random weights."""
    return Whisper(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A spectrogram (bands, frames) with a text (tokens,), and the same a token later."""
    text = tokens.random(shape.vocabulary, shape.tokens + 1, generator)
    return (torch.randn(shape.bands, shape.frames, generator=generator), text[:-1]), text[1:]


def infer(network: Whisper, inputs: Sequence[Tensor]) -> Tensor:
    """The tokens of the text, (batch, generated)."""
    return network.generate(inputs[0], network.generated)


def compiled(network: Whisper) -> Sequence[nn.Module]:
    """The blocks, which generating calls without the network around them."""
    return (*network.encoder, *network.decoder)
