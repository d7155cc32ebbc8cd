"""Training steps on a CPU with one planted bottleneck each, and one step without, to test verdicts on CPUs.

`program` names the step: a batch that takes long to make, one overwhelming product, hundreds of tiny operators, or many
operators that take about as long.
"""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

SHAPE = {"program": "balanced"}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}
LOADER, PRODUCT, TINY, BALANCED = "loader", "product", "tiny", "balanced"
PROGRAMS = (LOADER, PRODUCT, TINY, BALANCED)
SLEEP_S = 0.05
# Functions of the same number of elements; none of them takes a quarter of the total time.
FUNCTIONS = ("tanh", "exp", "sigmoid", "log1p", "sin", "cos", "expm1", "erf", "atan", "sinh", "log10", "log2")
WIDTH, CALLS = 1024, 2000
SIZES = {LOADER: 1 << 17, PRODUCT: WIDTH**2, TINY: 8, BALANCED: 1 << 21}


class Product(nn.Module):
    """One matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.mm(inputs, self.weight)


class Many(nn.Module):
    """Each function once, on the same numbers."""

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.stack([getattr(torch, name)(numbers)[:8] for name in FUNCTIONS]).mean()


class Tiny(nn.Module):
    """Many sums of a few numbers, one after the other."""

    def forward(self, few: Tensor) -> Tensor:
        for _ in range(CALLS):
            few = few + 1e-3
        return few


class Program(nn.Module):
    """Runs a program, followed by a parameter, so that the backward pass takes almost no time."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program
        self.register_buffer("start", torch.rand(SIZES[program]))
        self.scale = nn.Parameter(torch.ones(()))
        self.large, self.many, self.tiny = Product(), Many(), Tiny()

    def forward(self, inputs: Tensor) -> Tensor:
        if self.program == PRODUCT:
            result = self.large(self.start.view(WIDTH, WIDTH))[0]
        elif self.program == TINY:
            result = self.tiny(self.start)
        else:
            result = self.many(self.start)
        return (result + inputs.mean()) * self.scale


def build(shape: SimpleNamespace) -> nn.Module:
    return Program(shape.program)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    return torch.randn((), generator=generator), torch.zeros(()), SLEEP_S / 4 * (shape.program == LOADER)


def collate(samples: Sequence[tuple[Tensor, Tensor, float]]) -> Any:
    time.sleep(sum(sleep_s for _, _, sleep_s in samples))
    return default_collate([(number, target) for number, target, _ in samples])


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs.square().mean()
