"""A training step of equal products of matrices, of which one layer may do one more: a slowdown of a known size."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

# Each layer makes three products a step: one forward, two backward. `products`: forward, of the layer `at`.
SHAPE = {"width": 1024, "layers": 11, "products": 1, "at": 5}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}


class Layer(nn.Linear):
    """A product of matrices, made again as often as it is to be."""

    products = 1

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            for _ in range(self.products - 1):
                super().forward(inputs)
        return super().forward(inputs)


class Chain(nn.Module):
    """Equal layers, one after the other, on as many rows as features."""

    def __init__(self, width: int, layers: int, products: int, at: int) -> None:
        """products: forward, of layer number `at`, from one on."""
        super().__init__()
        self.register_buffer("start", torch.randn(width, width))
        self.blocks = nn.Sequential(*(Layer(width, width, bias=False) for _ in range(layers)))
        self.blocks[at - 1].products = products

    def forward(self, inputs: Tensor) -> Tensor:
        """From (batch,) to (width, width), made on the device, so that the samples take no time."""
        return self.blocks((self.start + inputs.mean()).requires_grad_())


def build(shape: SimpleNamespace) -> nn.Module:
    return Chain(shape.width, shape.layers, shape.products, shape.at)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn((), generator=generator), torch.zeros(())


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs.square().mean()
