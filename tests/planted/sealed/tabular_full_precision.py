"""A transformer over the columns of a table, in fp32; its twin is in bf16."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.samples import whole as collate
from tests.planted.networks.transformer import blocks

SHAPE = {"fault": True, "rows": 512, "columns": 64, "width": 256, "heads": 8, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"rows": 4, "columns": 6, "width": 16, "heads": 2, "layers": 1}


class Table(nn.Module):
    """Each column's number times a vector of its own, and blocks between the columns of a row."""

    def __init__(self, columns: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(2, columns, width) / width**0.5)
        self.blocks = nn.Sequential(*blocks(layers, width, heads))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))

    def forward(self, numbers: Tensor) -> Tensor:
        return self.head(self.blocks(numbers[..., None] * self.vectors[0] + self.vectors[1]).mean(1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Table(shape.columns, shape.width, shape.heads, shape.layers)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of a table, and the class of each."""
    return torch.randn(shape.rows, shape.columns, generator=generator), torch.randint(
        2, (shape.rows,), generator=generator
    )
