"""A GPT with a mixture of experts in each block: a token goes to one expert, which takes up to its capacity."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Attention, Block, Text

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 128, "width": 256, "heads": 4, "layers": 4, "experts": 16}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 16, "heads": 2, "layers": 1, "experts": 4}


class Experts(nn.Module):
    """Two linear layers for each expert, which tokens are routed to by their own scores."""

    def __init__(self, fault: bool, width: int, experts: int) -> None:
        """fault: whether experts are called one after the other."""
        super().__init__()
        self.fault, self.experts = fault, experts
        self.route = nn.Linear(width, experts)
        self.inner = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.outer = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)

    def forward(self, flow: Tensor) -> Tensor:
        """From (batch, length, width) to the same; tokens above an expert's capacity get nothing."""
        rows = flow.flatten(0, 1)
        share, choice = self.route(rows).softmax(-1).max(-1)
        capacity = 2 * len(rows) // self.experts
        done = (self.one_by_one if self.fault else self.together)(rows, choice, capacity)
        return (done * share[:, None]).view_as(flow)

    def one_by_one(self, rows: Tensor, choice: Tensor, capacity: int) -> Tensor:
        """Each expert on the rows that chose it."""
        done = torch.zeros_like(rows)
        for expert in range(self.experts):
            places = (choice == expert).nonzero().squeeze(1)[:capacity]
            if len(places):
                inner = gelu(rows[places] @ self.inner[expert])
                done = done.index_add(0, places, (inner @ self.outer[expert]).to(done.dtype))
        return done

    def together(self, rows: Tensor, choice: Tensor, capacity: int) -> Tensor:
        """All experts at once, each on as many rows as it may take."""
        chosen = one_hot(choice, self.experts)
        turn = (chosen.cumsum(0) * chosen).sum(1) - 1
        # Rows above the capacity go to a place that is dropped.
        slot = torch.where(turn < capacity, choice * capacity + turn, self.experts * capacity)
        given = rows.new_zeros(self.experts * capacity + 1, rows.shape[1]).index_copy(0, slot, rows)
        inner = gelu(torch.bmm(given[:-1].view(self.experts, capacity, -1), self.inner))
        done = torch.bmm(inner, self.outer).flatten(0, 1)
        return torch.cat((done, done.new_zeros(1, done.shape[1])))[slot].to(rows.dtype)


def build(shape: SimpleNamespace) -> nn.Module:
    inner: list[nn.Module] = [
        Block(
            shape.width,
            Attention(shape.width, shape.heads, causal=True),
            Experts(shape.fault, shape.width, shape.experts),
        )
        for _ in range(shape.layers)
    ]
    return Text(shape.vocabulary, shape.tokens, shape.width, inner)
