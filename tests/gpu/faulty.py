"""Training steps that go wrong on a GPU in one way each, by `fault`; without one, they wait as long as `pause_ms` says."""

import time
from types import SimpleNamespace

import torch
from torch import Tensor, nn

SHAPE = {"fault": "none", "pause_ms": 1}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}


class Beyond:
    """An array that is said to be larger than the memory that it begins in."""

    def __init__(self, start: Tensor) -> None:
        self.start = start
        self.__cuda_array_interface__ = {
            "data": (start.data_ptr(), False), "shape": (1 << 40,), "typestr": "<f4", "version": 3,
        }  # fmt: skip


class Faulty(nn.Module):
    """A product of matrices that comes to grief."""

    def __init__(self, fault: str, pause_ms: int) -> None:
        """fault: memory, illegal, index, or none."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(512, 512))
        self.fault, self.pause_ms = fault, pause_ms

    def forward(self, inputs: Tensor) -> Tensor:
        product = torch.mm(self.weight, self.weight) * inputs.mean()
        if self.fault == "memory":
            kept = [torch.empty(1 << 36, dtype=torch.uint8, device=product.device) for _ in range(8)]
            product = product + len(kept)
        if self.fault == "illegal":
            far = torch.as_tensor(Beyond(product.detach()), device=product.device)
            product = product + far[1 << 39]
        if self.fault == "index":
            rows = torch.full((4,), 1 << 20, device=product.device)
            product = product + nn.functional.embedding(rows, self.weight).sum()
        time.sleep(self.pause_ms / 1000)
        return product


def build(shape: SimpleNamespace) -> nn.Module:
    return Faulty(shape.fault, shape.pause_ms)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn((), generator=generator), torch.zeros(())


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs.square().mean()
