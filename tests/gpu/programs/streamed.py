"""A network beside which copies of known sizes run on a second stream, and kernels of known lengths on both.

In each call, on a GPU, the second stream copies from pinned memory while the first one computes for longer than that
takes. Then both compute at the same time, the second one for half as long. Then nothing runs beside a copy on the GPU
and a copy to pageable memory. Parameters by hand: 64 * 8 + 8 = 520.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

PARAMETERS = 520
SHAPE = {"inputs": 64, "classes": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 4}}}
# Bytes of the copies: from pinned memory, on the GPU, and to pageable memory.
PINNED, WITHIN, PAGEABLE = 128 << 20, 256 << 20, 8 << 20
# Clock cycles of the kernels: beside the copy (some 20 ms, of which the copy takes 3 to 10), and of the first and the
# second stream beside each other.
COVER, FIRST, SECOND = 40_000_000, 8_000_000, 4_000_000


# Made by the first call, and not by the network, because profzoo copies networks.
BUFFERS: dict[str, Any] = {}


def make_buffers() -> None:
    """Allocate what is copied, and make the second stream."""
    BUFFERS["side"] = torch.cuda.Stream()
    BUFFERS["pinned"] = torch.zeros(PINNED, dtype=torch.uint8, pin_memory=True)
    BUFFERS["received"] = torch.empty(PINNED, dtype=torch.uint8, device="cuda")
    BUFFERS["source"], BUFFERS["target"] = (torch.empty(WITHIN, dtype=torch.uint8, device="cuda") for _ in range(2))
    BUFFERS["result"] = torch.empty(PAGEABLE, dtype=torch.uint8)
    torch.cuda.synchronize()


def work() -> None:
    """Do what the tables have to show."""
    main, side = torch.cuda.current_stream(), BUFFERS["side"]
    side.wait_stream(main)
    torch.cuda._sleep(COVER)
    with torch.cuda.stream(side):
        BUFFERS["received"].copy_(BUFFERS["pinned"], non_blocking=True)
    main.wait_stream(side)
    side.wait_stream(main)
    torch.cuda._sleep(FIRST)
    with torch.cuda.stream(side):
        torch.cuda._sleep(SECOND)
    main.wait_stream(side)
    BUFFERS["target"].copy_(BUFFERS["source"])
    BUFFERS["result"].copy_(BUFFERS["target"][:PAGEABLE])


class Streamed(nn.Module):
    """A linear layer, beside which a second stream works."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.is_cuda:
            if not BUFFERS:
                make_buffers()
            work()
        return self.layer(inputs)


def build(shape: SimpleNamespace) -> nn.Module:
    return Streamed(shape.inputs, shape.classes)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.randn(shape.inputs, generator=generator), int(torch.randint(shape.classes, (), generator=generator))
