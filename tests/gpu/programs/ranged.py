"""A small network that opens ranges of its own by the names of profzoo's, and one whose name holds quotes and a newline.

Parameters by hand, of 64 inputs, 128 hidden units and 8 classes: 64 * 128 + 128 + 128 * 8 + 8 = 9_352.
"""

from types import SimpleNamespace

import nvtx
import torch
from torch import Tensor, nn
from torch.profiler import record_function

PARAMETERS = 9_352
SHAPE = {"inputs": 64, "hidden": 128, "classes": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 32}, "inference": {"batch": 32}}}
# Passes through tanh per step, each in ranges of its own.
PASSES = 4
QUOTED = 'say "hello",\n"dur": 5'


class Network(nn.Module):
    """Two layers with a chain of tanh between them."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.first = nn.Linear(shape.inputs, shape.hidden)
        self.last = nn.Linear(shape.hidden, shape.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.first(inputs)
        for name in ("step", "backward", "data", "window"):
            with nvtx.annotate(name), nvtx.annotate(name, domain="mine"), record_function(name):
                values = torch.tanh(values)
        with record_function(QUOTED):
            return self.last(values)


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.randn(shape.inputs, generator=generator), int(torch.randint(shape.classes, (), generator=generator))
