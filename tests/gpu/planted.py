"""Training steps with one planted bottleneck each, and the same steps without it, to test verdicts.

`program` names the step, `fault: false` takes its bottleneck out and leaves its products and their results.
"""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

SHAPE = {"program": "copies", "fault": True}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}
ROUNDS = 6
# Number of elements of a tensor whose kernels take no longer than their launch.
SMALL = 1 << 18
# What a CPU does after it waited, in ms: by the clock, as CPUs differ, and less than a product of WIDE takes a GPU.
OCCUPIED_MS, WIDE = 1.0, 8192
# The program with slow collating of samples, and the seconds per sample.
LOADER, SLEEP_S = "loader", 0.005


class Program(nn.Module):
    """Matrix products, each followed by a further operation on which the next product depends.

    The planted operation is a separate module (`beside`), so that its kernels have a layer.
    """

    width = 2048

    def __init__(self, fault: bool, width: int = 0) -> None:
        """fault: whether the bottleneck is there; width: of the matrices, if not the program's own."""
        super().__init__()
        size = width or self.width
        self.register_buffer("start", torch.randn(size, size))
        self.register_buffer("weight", torch.randn(size, size) / size**0.5)
        self.scale = nn.Parameter(torch.ones(()))
        self.beside = self.planted(fault)

    @staticmethod
    def planted(fault: bool) -> nn.Module:
        """Return the module after each product, which returns the product or values computed from it."""
        return nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (width, width) from (batch,); inputs are made on the GPU, so that samples take no time."""
        product = self.start + inputs.mean()
        for _ in range(ROUNDS):
            product = self.beside(torch.mm(product, self.weight))
        return product * self.scale


class Beside(nn.Module):
    """A module after a product."""

    def __init__(self, fault: bool) -> None:
        """fault: whether the bottleneck is there."""
        super().__init__()
        self.fault = fault


def wait(product: Tensor) -> None:
    """Wait until the GPU has finished all work."""
    if product.is_cuda:
        torch.cuda.synchronize()


def occupy() -> None:
    """Keep the CPU busy for OCCUPIED_MS; a sleeping CPU would wake up slower."""
    until = time.perf_counter() + OCCUPIED_MS / 1000
    while time.perf_counter() < until:
        pass


class Copy(Beside):
    """Copies to the host and back, through pageable memory."""

    def forward(self, product: Tensor) -> Tensor:
        return product.cpu().to(product.device) if self.fault else product


class Item(Beside):
    """Reads a result before work of the CPU that could run while the GPU is busy."""

    def forward(self, product: Tensor) -> Tensor:
        if self.fault:
            product[0, 0].item()
        occupy()
        return product


class Wait(Beside):
    """Waits for the GPU before such work."""

    def forward(self, product: Tensor) -> Tensor:
        if self.fault:
            wait(product)
        occupy()
        return product


class Small(Beside):
    """240 kernels per step whose work six could do, beside products that take twice their time."""

    def __init__(self, fault: bool) -> None:
        """fault: whether there are that many kernels."""
        super().__init__(fault)
        self.register_buffer("small", torch.ones(SMALL))

    def forward(self, product: Tensor) -> Tensor:
        for _ in range(40 if self.fault else 1):
            self.small.mul_(1.0)
        return product


class Double(Beside):
    """Adds a thousandth of a product in double precision, or in bf16 without the fault."""

    def forward(self, product: Tensor) -> Tensor:
        kind = torch.float64 if self.fault else torch.bfloat16
        wide = product.detach().to(kind)
        return product + 1e-3 * torch.mm(wide, wide).to(product.dtype).tanh()


class Strided(Beside):
    """Adds a thousandth of the mean of sums over every eighth column, or over adjacent columns without the fault."""

    STRIDE, TIMES, NUMBERS = 8, 12, 1 << 29

    def __init__(self, fault: bool) -> None:
        """fault: whether columns are far apart."""
        super().__init__(fault)
        self.register_buffer("table", torch.ones(self.NUMBERS))

    def forward(self, product: Tensor) -> Tensor:
        count = self.table.numel() // self.STRIDE
        chosen = self.table[:: self.STRIDE] if self.fault else self.table[:count]
        for _ in range(self.TIMES // ROUNDS):
            product = product + 1e-3 * (chosen * 2.0)[0]
        return product


class Copies(Program):
    """Copies to the host and back."""

    planted = staticmethod(Copy)


class Items(Program):
    """A `.item()` after each product."""

    width = WIDE
    planted = staticmethod(Item)


class Waits(Program):
    """A synchronisation after each product."""

    width = WIDE
    planted = staticmethod(Wait)


class Tiny(Program):
    """A loop of very small kernels."""

    width = 1536
    planted = staticmethod(Small)


class Doubles(Program):
    """Products in double precision."""

    width = 4096
    planted = staticmethod(Double)


class Strides(Program):
    """A strided access to memory."""

    width = 512
    planted = staticmethod(Strided)


class Loader(Program):
    """Samples whose collating is slow."""

    width = 1024


class FewChannels(nn.Module):
    """A convolution over images of 3 channels, or of 120 channels with a smaller kernel.

    Both have the same number of operations and results. Three channels fill no tile of a tensor core in any precision.
    The kernel is large, so that other operations on the results take a small part of the time. Its weights are frozen,
    because gradients of so few weights have another bottleneck: a grid that is too small.
    """

    IMAGES, SIZE, OUT = 24, 384, 64
    FEW, MANY = (3, 19), (120, 3)

    def __init__(self, fault: bool, width: int = 0) -> None:
        """fault: whether the channels are 3; width: of the images, if not SIZE."""
        super().__init__()
        size = width or self.SIZE
        channels, kernel = self.FEW if fault else self.MANY
        self.register_buffer("images", torch.randn(self.IMAGES, channels, size, size))
        self.beside = nn.Conv2d(channels, self.OUT, kernel, padding=kernel // 2, bias=False).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.beside(self.images + inputs.mean())
        return result.mean((2, 3)) * self.scale


PROGRAMS: dict[str, type[Program] | type[FewChannels]] = {
    "copies": Copies,
    "items": Items,
    "waits": Waits,
    "tiny": Tiny,
    LOADER: Loader,
    "channels": FewChannels,
    "doubles": Doubles,
    "strides": Strides,
}


def build(shape: SimpleNamespace) -> nn.Module:
    return PROGRAMS[shape.program](shape.fault)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    sleep_s = SLEEP_S if shape.program == LOADER and shape.fault else 0.0
    return torch.randn((), generator=generator), torch.zeros(()), sleep_s


def collate(samples: Sequence[tuple[Tensor, Tensor, float]]) -> Any:
    time.sleep(sum(sleep_s for _, _, sleep_s in samples))
    return default_collate([(number, target) for number, target, _ in samples])


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs.square().mean()
