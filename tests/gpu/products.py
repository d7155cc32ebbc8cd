"""A model whose work is known by arithmetic: matrix products of order 4096 in four precisions, and a copy of 1 GiB."""

import torch
from torch import Tensor, nn

WORKLOADS = {"trimmed": {"train": {"batch": 2}, "inference": {"batch": 2}}}
ORDER = 4096
# Multiplications and additions of one product.
FLOPS = 2 * ORDER**3
COPIED = 2**30
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Products(nn.Module):
    """Classifies its inputs, and multiplies and copies besides."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(1, 2)
        for name, dtype in PRECISIONS.items():
            self.register_buffer(name, torch.rand(ORDER, ORDER, dtype=dtype), persistent=False)
        for name in ("lower", "upper"):
            self.register_buffer(name, torch.zeros(COPIED // 2, dtype=torch.uint8), persistent=False)

    @torch.no_grad()
    def known(self) -> list[Tensor]:
        """The work itself. Concatenation copies by a kernel, where a plain copy would be left to the copy engine."""
        products = []
        for name in PRECISIONS:
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            products.append(torch.mm(getattr(self, name), getattr(self, name)))
        return [*products, torch.cat([self.lower, self.upper])]

    def forward(self, inputs: Tensor) -> Tensor:
        self.known()
        return self.classify(inputs)


def build(shape: object) -> nn.Module:
    return Products()


def sample(shape: object, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.zeros(1), 0
