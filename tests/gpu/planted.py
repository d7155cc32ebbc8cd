"""Training steps with one planted bottleneck each, and the same steps without it: what verdicts are held against.

`program` names the step, `fault: false` takes its bottleneck out and leaves its products and their results.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

SHAPE = {"program": "copies", "fault": True}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}
ROUNDS = 6
# Elements of a tensor whose kernels take no longer than their launch.
SMALL = 1 << 18


class Program(nn.Module):
    """Products of matrices, with something beside each, on which the next one depends."""

    width = 2048

    def __init__(self, fault: bool) -> None:
        """fault: whether the bottleneck is there."""
        super().__init__()
        self.register_buffer("start", torch.randn(self.width, self.width))
        self.register_buffer("weight", torch.randn(self.width, self.width) / self.width**0.5)
        self.register_buffer("small", torch.ones(SMALL))
        self.scale = nn.Parameter(torch.ones(()))
        self.fault = fault

    def forward(self, inputs: Tensor) -> Tensor:
        """From (batch,) to (width, width), made on the GPU, so that the samples take no time."""
        product = self.start + inputs.mean()
        for _ in range(ROUNDS):
            product = self.beside(torch.mm(product, self.weight))
        return product * self.scale

    def beside(self, product: Tensor) -> Tensor:
        """The product, or what became of it."""
        raise NotImplementedError

    def launches(self, count: int) -> None:
        """So many small kernels, one after another."""
        for _ in range(count):
            self.small.mul_(1.0)


class Copies(Program):
    """To the host and back, through pageable memory."""

    def beside(self, product: Tensor) -> Tensor:
        """The same numbers."""
        return product.cpu().to(product.device) if self.fault else product


class Items(Program):
    """A look at a result before launches that could have been made while the GPU was busy."""

    width = 3072

    def beside(self, product: Tensor) -> Tensor:
        """The product."""
        if self.fault:
            product[0, 0].item()
        self.launches(60)
        return product


class Tiny(Program):
    """Two hundred and forty kernels whose work a single one could do, beside products that take twice their time."""

    width = 1536

    def beside(self, product: Tensor) -> Tensor:
        """The product."""
        self.launches(40 if self.fault else 1)
        return product


PROGRAMS: dict[str, type[Program]] = {"copies": Copies, "items": Items, "tiny": Tiny}


def build(shape: SimpleNamespace) -> nn.Module:
    """The step of that name."""
    return PROGRAMS[shape.program](shape.fault)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A number, and nothing to be held against."""
    return torch.randn((), generator=generator), torch.zeros(())


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean of the squares."""
    return outputs.square().mean()
