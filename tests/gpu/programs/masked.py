"""A network that goes through its block as often as a row needs, on the rows that a boolean mask selects.

The rows of batch k, in the order of the data set, need 1 + k % 3 passes: steps of inference, which is in that order,
launch one, two and three passes in turn. The batch is a mapping, and the network makes its own loss.

Parameters by hand, of width 64 and 5 classes: 64 * 64 + 64 + 64 * 5 + 5 = 4_485.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

PARAMETERS = 4_485
ROWS, PASSES = 8, 3
SHAPE = {"width": 64, "classes": 5, "samples": 4800}
WORKLOADS = {"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}


class Network(nn.Module):
    """A block that rows go through again and again, and a head."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.block = nn.Linear(shape.width, shape.width)
        self.head = nn.Linear(shape.width, shape.classes)

    def forward(self, values: Tensor, passes: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """From (batch, width), and how many passes each row needs, to scores and their loss."""
        left = passes.clone()
        while (mask := left > 0).any():
            out = torch.zeros_like(values)
            out[mask] = self.block(values[mask]).tanh().to(values.dtype)
            values = torch.where(mask[:, None], out, values)
            left = left - 1
        logits = self.head(values)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class Rows(Dataset[dict[str, Any]]):
    """Rows of random numbers."""

    def __init__(self, shape: SimpleNamespace) -> None:
        self._shape = shape

    def __len__(self) -> int:
        return self._shape.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        values = torch.randn(self._shape.width, generator=torch.Generator().manual_seed(index))
        passes = 1 + index // ROWS % PASSES
        return {"values": values, "passes": passes, "labels": index % self._shape.classes}


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape)


def dataset(shape: SimpleNamespace) -> Dataset[dict[str, Any]]:
    return Rows(shape)
