"""DLRMv3, scaled to one GPU: how likely a user clicks each of several items, by all that the user did before.

Parameters of R rows of tables in all and hidden h, L layers with a features of all heads, n actions, i within an
encoder, P places and T times: R h, two encoders of 2 i h + 3 i + 3 h, one of 8 n i + i h + 3 i + 3 h, 16 n, (P + T + 1)
h, L (7 a h + 6 a + 2 h), and 6 h^2 + 18 h + 1: 517,136,759,121 as published (1 TB in fp16), 129,399,121 trimmed.
"""

import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad, silu

GROUPS = ("recommendation", "modern")
SOURCE = "Zhai et al. 2024, arXiv:2402.17152, sizes of MLPerf Inference's DLRMv3; parameters derived in the file"
PARAMETERS = 129_399_121
# kinds: of items; actions: kinds of what a user did with an item; times: steps of the square root of minutes that are
# told apart.
SHAPE = {
    "items": 1_000_000_000, "users": 10_000_000, "kinds": 128, "actions": 5, "hidden": 512, "inner": 256, "layers": 5,
    "heads": 4, "width": 128, "places": 8192, "times": 2048,
}  # fmt: skip
# Tables are as large as GPUs of 8 and 80 GB hold them with what Adagrad keeps; the reference's inference has about as
# long a history as the benchmark's, and as many candidates.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "history": 512, "candidates": 32, "items": 200_000, "users": 20_000},
        "inference": {"batch": 8, "history": 512, "candidates": 128, "items": 200_000, "users": 20_000},
    },
    "reference": {
        "train": {"batch": 8, "history": 2048, "candidates": 32, "items": 2_000_000, "users": 200_000},
        "inference": {"batch": 2, "history": 6400, "candidates": 2048, "items": 2_000_000, "users": 200_000},
    },
}
REFERENCE = {
    "parameters": 517_136_759_121, "operations": 902_654_076_928,
    "source": "both derived from the benchmark's configuration; its weights are 1 TB in fp16",
}  # fmt: skip
# Features of an action; seconds of an hour and a day, and how many of them are told apart.
TOLD, PERIODS, COUNTS = 8, (3600, 86_400), (24, 7)


class Gated(nn.LayerNorm):
    """Each value times the sigmoid of its norm."""

    def forward(self, flow: Tensor) -> Tensor:
        """Values of the same shape."""
        return flow * super().forward(flow).sigmoid()


def encoder(inputs: int, inner: int, outputs: int) -> nn.Sequential:
    """Two linear layers, each with a norm."""
    return nn.Sequential(nn.Linear(inputs, inner), Gated(inner), nn.Linear(inner, outputs), nn.LayerNorm(outputs))


def clock(seconds: Tensor) -> Tensor:
    """Hour of the day and day of the week, as cosines and sines, (..., 4)."""
    units, counts = (torch.tensor(values, device=seconds.device) for values in (PERIODS, COUNTS))
    angles = 2 * math.pi * (seconds[..., None] // units % counts) / counts
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


class Layer(nn.Module):
    """Attention that weighs by SiLU instead of a softmax, and whose outputs are gated; no feed-forward network."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """heads, and width of each."""
        super().__init__()
        whole, self.heads, self.width = shape.heads * shape.width, shape.heads, shape.width
        self.norm, self.project = nn.LayerNorm(shape.hidden), nn.Linear(shape.hidden, 4 * whole)
        self.outer, self.dropout = nn.LayerNorm(whole), nn.Dropout(0.1)
        self.merge = nn.Linear(3 * whole, shape.hidden, bias=False)

    def forward(self, flow: Tensor, hidden: Tensor) -> Tensor:
        """What comes out for (batch, length, hidden); hidden: true where a key is not to be seen."""
        gate, *parts = self.project(self.norm(flow)).chunk(4, dim=-1)
        value, query, key = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in parts)
        weights = silu(query @ key.transpose(2, 3) * self.width**-0.5) / flow.shape[1]
        mixed = (weights.masked_fill(hidden, 0) @ value).transpose(1, 2).flatten(2)
        gate = silu(gate)
        return flow + self.merge(self.dropout(torch.cat((gate, mixed, gate * self.outer(mixed)), dim=-1)))


class DLRM(nn.Module):
    """From (user (batch,), items, kinds and seconds of history and candidates, actions of the history) to scores."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes as the shape says."""
        super().__init__()
        hidden, told = shape.hidden, shape.actions * TOLD
        self.items, self.kinds, self.users = (
            nn.Embedding(rows, hidden, sparse=True) for rows in (shape.items, shape.kinds, shape.users)
        )
        self.places, self.times = nn.Embedding(shape.places, hidden), nn.Embedding(shape.times + 1, hidden)
        for table in (self.items, self.kinds, self.users, self.places, self.times):
            nn.init.uniform_(table.weight, -1 / len(table.weight) ** 0.5, 1 / len(table.weight) ** 0.5)
        self.actions = nn.Parameter(5 * torch.randn(shape.actions, TOLD))
        self.unknown = nn.Parameter(5 * torch.randn(told))
        self.content, self.kind, self.action = (encoder(size, shape.inner, hidden) for size in (hidden, hidden, told))
        self.user, self.dropout = nn.Linear(hidden, hidden), nn.Dropout(0.2)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.leave, self.norm = nn.Linear(hidden + 2 * len(PERIODS), hidden), nn.LayerNorm(hidden)
        self.wanted = encoder(2 * hidden, hidden, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), Gated(hidden), nn.Linear(hidden, 1))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Scores (batch, candidates); candidates see the user and the history, and not each other."""
        user, items, kinds, seconds, actions = inputs
        length, device = actions.shape[1], items.device
        content, kind = self.items(items), self.kinds(kinds)
        done = (actions[..., None] >> torch.arange(len(self.actions), device=device)) & 1
        acted = (done[..., None] * self.actions).flatten(2)
        unknown = self.unknown.expand(len(user), items.shape[1] - length, -1)
        flow = self.content(content) + self.kind(kind) + self.action(torch.cat((acted, unknown), dim=1))
        flow = torch.cat((self.user(self.users(user))[:, None], flow), dim=1)
        at = torch.arange(flow.shape[1], device=device)
        # The user has the first place; others count from the end of the history.
        place = (length + 2 - at).clamp(1, len(self.places.weight) - 1) * (at > 0)
        ago = ((seconds[:, -1:] - pad(seconds, (1, 0))) / 60).sqrt().long().clamp(max=len(self.times.weight) - 1)
        flow = self.dropout(flow + self.places(place) + self.times(ago))
        unseen = ((at > at[:, None]) | (at > length)) & (at != at[:, None])
        for layer in self.layers:
            flow = layer(flow, unseen)
        told = torch.cat((flow[:, length + 1 :], clock(seconds[:, length:]).to(flow.dtype)), dim=-1)
        wanted = self.wanted(torch.cat((content, kind), dim=-1)[:, length:])
        return self.head(self.norm(self.leave(told)) * wanted).squeeze(-1)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return DLRM(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """What a user did, with candidates, and whether each was clicked; low rows of tables are the likelier."""

    def draw(most: int, *size: int) -> Tensor:
        return (most * torch.rand(size, generator=generator) ** 3).long()

    whole = shape.history + shape.candidates
    seconds = draw(PERIODS[1], shape.history).cumsum(0)
    seconds = torch.cat((seconds, seconds[-1:].expand(shape.candidates) + PERIODS[0]))
    actions = torch.randint(1, 2**shape.actions, (shape.history,), generator=generator)
    clicked = torch.randint(2, (shape.candidates,), generator=generator)
    return (draw(shape.users), draw(shape.items, whole), draw(shape.kinds, whole), seconds, actions), clicked


def loss(scores: Tensor, clicked: Tensor) -> Tensor:
    """Cross-entropy of the chance of a click."""
    return binary_cross_entropy_with_logits(scores, clicked.to(scores.dtype))


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adagrad, which takes the sparse gradients of the tables."""
    return torch.optim.Adagrad(parameters, lr=0.005)
