"""Transformers: blocks of attention and two linear layers, a network for text and one for images."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention


class Attention(nn.Module):
    """Self-attention of several heads; subclasses compute it in other ways."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        """Heads divide the width; causal: whether a token only sees those before it."""
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        """From (batch, length, width) to the same; mask: true where a key may be seen."""
        query, key, value = self.project(flow).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.merge(self.mix(query, key, value, mask).transpose(1, 2).flatten(2))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Weighted values, (batch, heads, length, width / heads)."""
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal and mask is None)


def two_layers(width: int, activation: Callable[[], nn.Module] = nn.GELU) -> nn.Module:
    """Two linear layers with an activation between them, the inner one four times as wide."""
    return nn.Sequential(nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width))


class Block(nn.Module):
    """Attention and a network for each token, each after a norm and added to what went in."""

    def __init__(
        self, width: int, attention: nn.Module, feed: nn.Module, norm: Callable[[int], nn.Module] = nn.LayerNorm
    ) -> None:
        """attention, feed: from the width to the width; norm: makes a norm of a width."""
        super().__init__()
        self.norms = nn.ModuleList(norm(width) for _ in range(2))
        self.attention, self.feed = attention, feed

    def forward(self, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        flow = flow + self.attention(self.norms[0](flow), mask)
        return flow + self.feed(self.norms[1](flow))


class Text(nn.Module):
    """Words and places, blocks and a norm; `scores` compares with the words' own vectors."""

    def __init__(
        self, vocabulary: int, longest: int, width: int, blocks: list[nn.Module], norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def embed(self, text: Tensor) -> Tensor:
        """Vectors of words and places, (batch, length, width)."""
        return self.words(text) + self.places.weight[: text.shape[1]]

    def read(self, text: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states (batch, length, width) of tokens (batch, length)."""
        flow = self.embed(text)
        for block in self.blocks:
            flow = block(flow, mask)
        return self.norm(flow)

    def scores(self, flow: Tensor) -> Tensor:
        return linear(flow, self.words.weight)

    def forward(self, text: Tensor) -> Tensor:
        return self.scores(self.read(text))


class Vision(nn.Module):
    """Patches of an image as tokens, blocks, and class scores of their mean."""

    def __init__(self, size: int, patch: int, width: int, blocks: list[nn.Module], classes: int = 1000) -> None:
        """patch: pixels of its edge, which divides size."""
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def tokens(self, images: Tensor) -> Tensor:
        """Vectors of the patches, (batch, patches, width)."""
        return self.patches(images).flatten(2).transpose(1, 2) + self.places

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.tokens(images))).mean(1))


def blocks(count: int, width: int, heads: int, causal: bool = False) -> list[nn.Module]:
    """Blocks as they should be: fused attention, torch's own norms and activations."""
    return [Block(width, Attention(width, heads, causal), two_layers(width)) for _ in range(count)]
