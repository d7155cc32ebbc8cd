"""A chain of equal products of matrices that `tests/benchmarks/judge_gains.py` judges; one more may be made for nothing.

The sizes are those of a GPU's step of some milliseconds; `plan.py` beside a copy of this file says after which product
the one is made whose result counts nothing, or that there is none.
"""

from types import SimpleNamespace

import torch
from plan import AFTER  # type: ignore[import-not-found]
from torch import Tensor, nn

SHAPE = {"width": 512, "layers": 33, "results": 16}
WORKLOADS = {"trimmed": {"inference": {"batch": 8192}}}


class Chain(nn.Module):
    """Products in a row."""

    def __init__(self, width: int, layers: int, results: int) -> None:
        """width: order of the matrices."""
        super().__init__()
        scale = (2 / width) ** 0.5
        self.matrices = nn.ParameterList(scale * torch.randn(width, width) for _ in range(layers))
        self.last = nn.Linear(width, results)

    def forward(self, hidden: Tensor) -> Tensor:
        """Inputs to results: (batch, width) to (batch, results)."""
        for place, matrix in enumerate(self.matrices):
            if place == AFTER:
                # Nothing is added, and the product is made all the same.
                hidden = torch.add(hidden, hidden @ matrix, alpha=0)
            hidden = torch.relu(hidden @ matrix)
        return self.last(hidden)


def build(shape: SimpleNamespace) -> nn.Module:
    """The network with random weights."""
    return Chain(shape.width, shape.layers, shape.results)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """Random numbers, and no target that counts."""
    return torch.randn(shape.width, generator=generator), 0
