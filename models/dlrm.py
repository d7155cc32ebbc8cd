"""DLRM with a deep cross network: the chance of a click, from numbers and from choices that large tables embed.

Parameters of tables of R rows in all with d features, F of them, s = (F + 1) d in all, n numbers, and a cross layer of
rank r: R d, linear layers n-512-256-d and s-1024-1024-512-256-1, and 3 (2 s r + s). As published R d = 26,135,627,264;
the trimmed tables have at most 200,000 rows, all others at most two million.
"""

import itertools
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

GROUPS = ("recommendation", "modern")
SOURCE = "Naumov et al. 2019, arXiv:1906.00091, sizes of MLPerf Training's DLRM-DCNv2; parameters derived in the file"
PARAMETERS = 236_357_889
# rows: of each table of the Criteo data set, before `most`; chosen: rows that a sample takes of each and sums up.
SHAPE = {
    "numbers": 13, "features": 128, "bottom": [512, 256], "top": [1024, 1024, 512, 256], "crosses": 3, "rank": 512,
    "rows": [
        40_000_000, 39_060, 17_295, 7424, 20_265, 3, 7122, 1543, 63, 40_000_000, 3_067_956, 405_282, 10, 2209, 11_938,
        155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
    ],
    "chosen": [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1],
    "most": 40_000_000,
}  # fmt: skip
# A GPU of 80 GB holds tables of at most two million rows, and what Adagrad keeps of them.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 128, "most": 200_000},
        "inference": {"batch": 128, "most": 200_000},
    },
    "reference": {
        "train": {"batch": 8192, "most": 2_000_000},
        "inference": {"batch": 8192, "most": 2_000_000},
    },
}


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers between these sizes, each with ReLU."""
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())))


class DLRM(nn.Module):
    """From (numbers (batch, numbers), rows (batch, all chosen)) to a score (batch, 1)."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes as the shape says."""
        super().__init__()
        width, self.chosen = shape.features, shape.chosen
        whole = (len(shape.rows) + 1) * width
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(min(rows, shape.most), width, mode="sum", sparse=True) for rows in shape.rows
        )
        for table in self.tables.parameters():
            nn.init.uniform_(table, -1 / len(table) ** 0.5, 1 / len(table) ** 0.5)
        self.bottom = perceptron([shape.numbers, *shape.bottom, width])
        self.narrow = nn.ModuleList(nn.Linear(whole, shape.rank, bias=False) for _ in range(shape.crosses))
        self.widen = nn.ModuleList(nn.Linear(shape.rank, whole) for _ in range(shape.crosses))
        self.top = nn.Sequential(perceptron([whole, *shape.top]), nn.Linear(shape.top[-1], 1))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """The score; cross layers multiply all features with linear mixtures of them (arXiv:2008.13535)."""
        numbers, rows = inputs
        fields = zip(self.tables, rows.split(self.chosen, dim=1), strict=True)
        first = torch.cat([self.bottom(numbers), *(table(chosen) for table, chosen in fields)], dim=1)
        flow = first
        for narrow, widen in zip(self.narrow, self.widen, strict=True):
            flow = first * widen(narrow(flow)) + flow
        return self.top(flow)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return DLRM(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Numbers (numbers,) with rows (all chosen,), of which low ones are the likelier, and whether a user clicked."""
    rows = [
        (min(count, shape.most) * torch.rand(taken, generator=generator) ** 3).long()
        for count, taken in zip(shape.rows, shape.chosen, strict=True)
    ]
    clicked = torch.randint(2, (1,), generator=generator).float()
    return (torch.randn(shape.numbers, generator=generator), torch.cat(rows)), clicked


def loss(scores: Tensor, clicked: Tensor) -> Tensor:
    """Cross-entropy of the chance of a click."""
    return binary_cross_entropy_with_logits(scores, clicked)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adagrad, which takes the sparse gradients of the tables, as in MLPerf's."""
    return torch.optim.Adagrad(parameters, lr=0.005)
