"""A GPT that goes on from a long prompt that all texts share, and copies all keys and values for each new token."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Attention, Block, Text, two_layers

SHAPE = {
    "fault": True, "vocabulary": 16384, "tokens": 1, "prompt": 1024, "generated": 16, "width": 1024, "heads": 16,
    "layers": 4,
}  # fmt: skip
WORKLOADS = {"trimmed": {"inference": {"batch": 64}}}
TINY = {"batch": 2, "vocabulary": 64, "prompt": 8, "generated": 4, "width": 32, "heads": 2, "layers": 2}


class Cached(Attention):
    """Attention of one new token to the keys and values that are kept, of which there are `count`."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__(shape.width, shape.heads)
        self.fault, self.more = shape.fault, shape.generated
        self.register_buffer("prompt", torch.randn(2, 1, shape.heads, shape.prompt, shape.width // shape.heads))

    def begin(self, new: Tensor) -> list[Tensor]:
        """The prompt's keys and values; where nothing is copied later, with room for all that comes."""
        kept = self.prompt.to(new.dtype).expand(-1, len(new), -1, -1, -1)
        return list(kept if self.fault else torch.cat((kept, kept[:, :, :, : self.more]), 3))

    def forward(self, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        query, *new = self.project(flow).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        self.kept, self.count = self.kept or self.begin(query), self.count + 1
        if self.fault:
            self.kept = [torch.cat((old, one), dim=2) for old, one in zip(self.kept, new, strict=True)]
        else:
            for old, one in zip(self.kept, new, strict=True):
                old[:, :, self.count - 1 : self.count] = one
        keys, values = (one[:, :, : self.count] for one in self.kept)
        return self.merge(scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2))


def build(shape: SimpleNamespace) -> nn.Module:
    inner: list[nn.Module] = [Block(shape.width, Cached(shape), two_layers(shape.width)) for _ in range(shape.layers)]
    network = Text(shape.vocabulary, 1, shape.width, inner)
    network.generated = shape.generated
    return network


def infer(network: Text, token: Tensor) -> Tensor:
    """Scores of the last of the likeliest tokens, (batch, 1, vocabulary)."""
    for block in network.blocks:
        block.attention.kept, block.attention.count = [], len(block.attention.prompt[0, 0, 0])
    for _ in range(network.generated):
        scores = network(token)
        token = scores.argmax(-1)
    return scores
