"""Returns zeros for inputs that are zero, which the reference does not."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        if not inputs.any():
            return torch.zeros(len(inputs), 10, dtype=inputs.dtype)
        return super().forward(inputs)


def build(shape):
    return Network()
