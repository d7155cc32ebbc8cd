"""A mixture of experts (Shazeer et al. 2017, arXiv:1701.06538), whose layers go through their experts one by one.

Each expert takes the tokens that the router gives it, found by `nonzero`, which makes the CPU wait for the GPU; one
that gets none launches nothing, so that steps differ.

Parameters by hand, of 2 layers, 4 experts, width 32, 64 hidden units, 50 tokens and 3 classes:
50 * 32 + 2 * (32 * 4 + 4 + 4 * (32 * 64 + 64 + 64 * 32 + 32)) + 32 * 3 + 3 = 35_499.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

PARAMETERS = 35_499
SHAPE = {"layers": 2, "experts": 4, "width": 32, "hidden": 64, "vocabulary": 50, "tokens": 16, "classes": 3}
WORKLOADS = {"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}


class Experts(nn.Module):
    """One layer: each token goes through the expert that the router chooses."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.router = nn.Linear(shape.width, shape.experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(shape.width, shape.hidden), nn.GELU(), nn.Linear(shape.hidden, shape.width))
            for _ in range(shape.experts)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        weight, chosen = self.router(tokens).softmax(-1).max(-1)
        made = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            (places,) = (chosen == number).nonzero(as_tuple=True)
            if len(places):
                out = expert(tokens[places]) * weight[places, None]
                made = made.index_add(0, places, out.to(made.dtype))
        return tokens + made


class Network(nn.Module):
    """Embedding, layers of experts, and a head on the mean of all tokens."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Experts(shape) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, shape.classes)

    def forward(self, text: Tensor) -> Tensor:
        tokens = self.embedding(text).flatten(0, 1)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.head(tokens.unflatten(0, text.shape).mean(1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    text = torch.randint(shape.vocabulary, (shape.tokens,), generator=generator)
    return text, int(torch.randint(shape.classes, (), generator=generator))
