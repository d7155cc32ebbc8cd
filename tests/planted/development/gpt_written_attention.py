"""A GPT whose attention is written out, with its softmax in fp32."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Attention, Block, Text, blocks, two_layers

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 1024, "width": 768, "heads": 12, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 16, "width": 32, "heads": 2, "layers": 2}


class Written(Attention):
    """Scores, a mask, softmax and a product, one after the other."""

    later: Tensor

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        """tokens: of the longest text."""
        super().__init__(width, heads, causal=True)
        self.register_buffer("later", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Weighted values, (batch, heads, length, width / heads)."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        length = scores.shape[-1]
        scores = scores.masked_fill(self.later[:length, :length], float("-inf"))
        weights = torch.softmax(scores.float(), dim=-1).to(query.dtype)
        return weights @ value


def build(shape: SimpleNamespace) -> nn.Module:
    inner: list[nn.Module] = (
        [
            Block(shape.width, Written(shape.width, shape.heads, shape.tokens), two_layers(shape.width))
            for _ in range(shape.layers)
        ]
        if shape.fault
        else blocks(shape.layers, shape.width, shape.heads, causal=True)
    )
    return Text(shape.vocabulary, shape.tokens, shape.width, inner)
