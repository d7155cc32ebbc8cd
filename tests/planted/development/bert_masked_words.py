"""A masked language model with a head after each layer, which scores the words of each kind of mask alone."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 256, "width": 768, "heads": 12, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 96}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 32, "width": 32, "heads": 2, "layers": 2}
# One of so many words is masked, and by as many for each kind: hidden, replaced and kept ones and names. The number of
# the word that stands for a masked one is that of its kind.
SHARE, KINDS = 8, 4


class Masked(Text):
    """Sum of the mean losses of the words of each kind of mask, after each layer."""

    def __init__(self, fault: bool, vocabulary: int, tokens: int, width: int, inner: list[nn.Module]) -> None:
        """fault: whether masked rows are selected by a boolean mask."""
        super().__init__(vocabulary, tokens, width, inner)
        self.fault, self.masked = fault, tokens // SHARE
        self.heads = nn.ModuleList(nn.Linear(width, width) for _ in inner)

    def forward(self, texts: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        masked, words = texts
        flow, losses = self.embed(masked), []
        for block, head in zip(self.blocks, self.heads, strict=True):
            flow = block(flow)
            losses += self.losses(masked, self.norm(flow), words, head)
        return torch.stack(losses).sum()

    def losses(self, masked: Tensor, flow: Tensor, words: Tensor, head: nn.Module) -> list[Tensor]:
        """Losses of the words of each kind of mask, or of all kinds at once."""
        if self.fault:
            masks = [masked == kind for kind in range(KINDS)]
            return [cross_entropy(self.scores(head(flow[mask])), words[mask]) for mask in masks]
        # Each text has as many masked words, so that their places can be told without a look at how many there are.
        places = (masked < KINDS).int().topk(self.masked, dim=1).indices
        rows = flow.gather(1, places[:, :, None].expand(-1, -1, flow.shape[-1]))
        # The kinds have as many words each, so that their means add up to so many times the mean of all.
        return [KINDS * cross_entropy(self.scores(head(rows.flatten(0, 1))), words.gather(1, places).flatten())]


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads)
    return Masked(shape.fault, shape.vocabulary, shape.tokens, shape.width, inner)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], int]:
    words = torch.randint(KINDS, shape.vocabulary, (shape.tokens,), generator=generator)
    masked = words.clone()
    count = shape.tokens // SHARE
    masked[torch.randperm(shape.tokens, generator=generator)[:count]] = torch.arange(count) % KINDS
    return (masked, words), 0


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs
