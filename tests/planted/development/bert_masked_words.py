"""A masked language model with a head after each layer, which scores the masked words alone."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 128, "width": 768, "heads": 12, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 16, "width": 32, "heads": 2, "layers": 2}
# One of so many words is masked, by the number of the word that stands for it.
SHARE, MASK = 8, 0


class Masked(Text):
    """Sum of the losses of the masked words, after each layer."""

    def __init__(self, fault: bool, vocabulary: int, tokens: int, width: int, inner: list[nn.Module]) -> None:
        """fault: whether masked rows are selected by a boolean mask."""
        super().__init__(vocabulary, tokens, width, inner)
        self.fault, self.masked = fault, tokens // SHARE
        self.heads = nn.ModuleList(nn.Linear(width, width) for _ in inner)

    def forward(self, texts: tuple[Tensor, Tensor]) -> Tensor:
        """From texts with masks and the words as they were."""
        masked, words = texts
        flow, losses = self.embed(masked), []
        for block, head in zip(self.blocks, self.heads, strict=True):
            flow = block(flow)
            chosen, wanted = self.choose(masked == MASK, self.norm(flow), words)
            losses.append(cross_entropy(self.scores(head(chosen)), wanted))
        return torch.stack(losses).sum()

    def choose(self, mask: Tensor, flow: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and words at the mask."""
        if self.fault:
            return flow[mask], words[mask]
        # Each text has as many masked words, so that their places can be told without a look at how many there are.
        places = mask.int().topk(self.masked, dim=1).indices
        rows = flow.gather(1, places[:, :, None].expand(-1, -1, flow.shape[-1]))
        return rows.flatten(0, 1), words.gather(1, places).flatten()


def build(shape: SimpleNamespace) -> nn.Module:
    """The network."""
    inner = blocks(shape.layers, shape.width, shape.heads)
    return Masked(shape.fault, shape.vocabulary, shape.tokens, shape.width, inner)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], int]:
    """A text with some words masked, and as it was."""
    words = torch.randint(1, shape.vocabulary, (shape.tokens,), generator=generator)
    masked = words.clone()
    masked[torch.randperm(shape.tokens, generator=generator)[: shape.tokens // SHARE]] = MASK
    return (masked, words), 0


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """The network's own."""
    return outputs
