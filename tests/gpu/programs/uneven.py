"""A network of which every twentieth call takes three times as long on a GPU. Parameters by hand: 64 * 8 + 8 = 520."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.gpu.programs.streamed import sample as sample

PARAMETERS = 520
SHAPE = {"inputs": 64, "classes": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 4}}}
# Clock cycles of a usual call (some 4 ms), which calls are slow, and how many times as slow.
CYCLES, EVERY, SLOWER = 8_000_000, 20, 3


class Uneven(nn.Module):
    """A linear layer after a kernel of known length."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, classes)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.is_cuda:
            self.calls += 1
            torch.cuda._sleep(CYCLES if self.calls % EVERY else SLOWER * CYCLES)
        return self.layer(inputs)


def build(shape: SimpleNamespace) -> nn.Module:
    return Uneven(shape.inputs, shape.classes)
